"""What is wrong, weak or worth knowing about a set-up. Decides only: settings and facts come in, findings go out."""
