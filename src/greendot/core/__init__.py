"""The decisions: pure, synchronous, time as an argument. Methods return what changed; the shell performs it."""
