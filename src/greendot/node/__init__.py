"""What all services of a node share: registry, hub, subscriptions, timers, tasks, calls to other nodes."""
