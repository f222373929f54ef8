"""Server side of the dashboard: access, views and actions; routes and metrics for operators."""
