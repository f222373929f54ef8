"""Driver of the behaviour suite: runs scripts against a real server, through a scripted proxy, with any client."""
