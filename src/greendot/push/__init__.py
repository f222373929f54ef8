"""Push: notifications for those who are away."""
