"""Integrations of the backend SDK with web frameworks. The server imports neither them nor the frameworks."""
