"""Wire protocol: bytes to frozen structs and back. No I/O, no clock, no state."""
