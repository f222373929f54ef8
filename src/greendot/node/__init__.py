"""State and tools that all services of a node share: registry, hub, subscriptions, timers, tasks, cluster RPC."""
