"""Store of records: durable, numbered without gaps. One port per capability; `port` combines them."""
