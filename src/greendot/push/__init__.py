"""Push: notifications for users who are away."""
