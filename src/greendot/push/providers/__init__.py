"""Push providers: FCM, APNs, Web Push and a webhook of the app."""
