"""From settings to a running server: every part is made and connected here."""
