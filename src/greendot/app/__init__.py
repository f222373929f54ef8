"""Construction of a server: every part is made from the settings and connected here."""
