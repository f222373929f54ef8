-- Publish a message that must arrive on the node's subscriber connection. Returns {epoch, time, correction}.
-- KEYS: nodes of one partition of this server
-- ARGV: channel, publish command, message
redis.call(ARGV[2], ARGV[1], ARGV[3])
return { redis.call('HGET', KEYS[1], '~epoch') or '', clock(KEYS[1], ''), redis.call('HGET', KEYS[1], '~clock') or '0' }
