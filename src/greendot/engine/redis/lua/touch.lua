-- Record that a session is on this connection. Returns {resumed, status known}. Refuses a node that is not live (FENCED)
-- or not known (UNKNOWN).
-- ARGV from 6: session, incarnation, connection, device, idle (i, a or empty to keep), name (empty to keep);
--   to restore lost data also: age of the state (ms), status letter, revision, until, text
local v = verb()
local session, node, conn, device, idle, name = ARGV[6], ARGV[7], tonumber(ARGV[8]), ARGV[9], ARGV[10], ARGV[11]
local refused = fenced(v.nodes, node)
if refused then return refused end
if not v.now then return other_time() end
local record = load_record(v) or fresh_record(v)
local before = told(record)
if name ~= '' then record.name = name end
if ARGV[12] then
  v.restoring = true
  v.since = v.now - tonumber(ARGV[12])
  local rev = tonumber(ARGV[14])
  if not record.manual or rev >= record.manual.rev then
    record.manual = { status = ARGV[13], rev = rev, till = tonumber(ARGV[15]), text = ARGV[16] }
  end
end
prune(record, v.nodes, v.now)
local found = find_entry(record, session)
-- A new connection ends the lingering sessions of its device.
local came = not found or found.node ~= node or found.conn ~= conn
if not found then
  record.entries[#record.entries + 1] = { session = session, device = device, conn = conn, idle = idle == 'i', node = node }
elseif found.node ~= node or conn > found.conn or (conn == found.conn and not found.deadline) then
  found.node, found.conn, found.deadline, found.heard = node, conn, nil, nil
  if idle ~= '' then found.idle = idle == 'i' end
else  -- an older or closed connection: its late commands are ignored
  came = false
end
if came then
  local kept = {}
  for _, entry in ipairs(record.entries) do
    if entry.session == session or entry.device ~= device or not entry.deadline then kept[#kept + 1] = entry end
  end
  record.entries = kept
end
settle(v, record, before)
return answer({ found and 1 or 0, record.manual and 1 or 0 })
