-- The session lives on this connection. Answers {resumed, status known}; refused (FENCED) for a node that is not live.
-- KEYS: presence bucket, nodes, seen bucket
-- ARGV: shift, field, channel, publish command, bus key,  session, incarnation, connection, device, idle (i, a or empty
--       to keep), name (empty to keep)
local keys = { presence = KEYS[1], nodes = KEYS[2], seen = KEYS[3], field = ARGV[2] }
local session, node, conn, device, idle, name = ARGV[6], ARGV[7], tonumber(ARGV[8]), ARGV[9], ARGV[10], ARGV[11]
if not life_of(keys.nodes, node).alive then return redis.error_reply('FENCED ' .. node) end
local now = clock(ARGV[1])
local record = load_record(keys)
local before
if record then
  before = told(record)
else
  local face, old_name = load_seen(keys)
  record = { face = face, own = face, name = old_name, seats = {} }
  before = told(record)
end
if name ~= '' then record.name = name end
prune(record, keys.nodes, now)
local resumed = 0
local found
for _, seat in ipairs(record.seats) do
  if seat.session == session then found = seat end
end
-- A connection that is new: its device is back, and nothing of it lingers any more.
local came = not found or found.node ~= node or found.conn ~= conn
if found then
  resumed = 1
  -- An older connection, or one that is gone: nothing it says late counts.
  local current = found.node ~= node or conn > found.conn or (conn == found.conn and not found.deadline)
  if not current then
    settle(record, before, keys, now, ARGV[3], ARGV[4], ARGV[5])
    return { resumed, record.manual and 1 or 0 }
  end
  found.node, found.conn, found.deadline, found.heard = node, conn, nil, nil
  if idle ~= '' then found.idle = idle == 'i' end
else
  record.seats[#record.seats + 1] = { session = session, device = device, conn = conn, idle = idle == 'i', node = node }
end
if came then
  local kept = {}
  for _, seat in ipairs(record.seats) do
    if seat.session == session or seat.device ~= device or not seat.deadline then kept[#kept + 1] = seat end
  end
  record.seats = kept
end
settle(record, before, keys, now, ARGV[3], ARGV[4], ARGV[5])
return { resumed, record.manual and 1 or 0 }
