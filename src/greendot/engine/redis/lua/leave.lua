-- End a linger that is over. Answers the milliseconds that remain when early, else -1.
-- KEYS: presence bucket, nodes, seen bucket
-- ARGV: shift, field, channel, publish command, bus key,  session, incarnation, connection
local keys = { presence = KEYS[1], nodes = KEYS[2], seen = KEYS[3], field = ARGV[2] }
local session, node, conn = ARGV[6], ARGV[7], tonumber(ARGV[8])
local record = load_record(keys)
if not record then return -1 end
local now = clock(ARGV[1])
local remaining = -1
for _, seat in ipairs(record.seats) do
  local mine = seat.session == session and seat.node == node and seat.conn == conn
  if mine and seat.deadline and seat.deadline > now then remaining = seat.deadline - now end
end
settle(record, told(record), keys, now, ARGV[3], ARGV[4], ARGV[5])
return remaining
