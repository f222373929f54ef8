"""Centrifuge client protocol v2 and the server API of Centrifugo, as translations of native sessions and rooms."""
