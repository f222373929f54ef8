-- Library of the verbs, prepended to each: the record of a user, as in greendot.presence.model, and the users in a room.
--
-- A record is text:  VISIBLE|OWN|NAME|MANUAL|ACTIVE|SESSION;SESSION…
--   VISIBLE state letter (o online, i idle, b busy, f offline) and version, then since, last seen, text, status
--           letter (b, i; empty: auto), until.  Empty since: the version.  OWN has the same fields; empty: equal to VISIBLE
--   MANUAL  status letter (a, b, i), revision, until, text; empty: not known yet
--   ACTIVE  time of the last frame from the sessions that have ended
--   SESSION session, device (empty: `default`), connection (empty: 1), i if idle, deadline, heard, incarnation
--           (empty: the session id names it)
-- Numbers are hexadecimal. Commas separate the fields of a part; empty fields at the end are left out. The node escapes
-- | , ; and % in names and texts.
--
-- All verbs on one user begin with the same arguments:
--   KEYS    presence bucket, nodes, seen bucket
--   ARGV    time (the node's estimate of the engine's time; empty: unknown), field, channel, publish command, bus key,
--           number of buckets that the node used to choose the keys

local function split(text, separator)
  local parts, count = {}, 0
  for part in string.gmatch(text .. separator, '([^' .. separator .. ']*)' .. separator) do
    count = count + 1
    parts[count] = part
  end
  return parts
end

local function join(parts, count)
  while count > 1 and (parts[count] == nil or parts[count] == '') do count = count - 1 end
  for index = 1, count do parts[index] = parts[index] or '' end
  return table.concat(parts, ',', 1, count)
end

local function number(text)
  if text == nil or text == '' then return nil end
  return tonumber(text, 16)
end

local function hex(value)
  if value == nil then return '' end
  return string.format('%x', value)
end

local function read_face(text)
  local f = split(text, ',')
  local version = number(string.sub(f[1], 2)) or 0
  local since = number(f[2])
  if since == nil and version > 0 then since = version end
  return { state = string.sub(f[1], 1, 1), version = version, since = since, seen = number(f[3]),
           text = f[4] or '', status = f[5] or '', till = number(f[6]) }
end

local function write_face(face)
  local since = face.since
  if since == face.version then since = nil end
  return join({ face.state .. (face.version > 0 and hex(face.version) or ''), hex(since), hex(face.seen), face.text,
                face.status, hex(face.till) }, 6)
end

local function read_record(text)
  local parts = split(text, '|')
  local record = { face = read_face(parts[1]), name = parts[3], heard = number(parts[5]), entries = {} }
  record.own = parts[2] == '' and record.face or read_face(parts[2])
  if parts[4] ~= '' then
    local m = split(parts[4], ',')
    record.manual = { status = m[1] == 'a' and '' or m[1], rev = number(m[2]) or 0, till = number(m[3]), text = m[4] or '' }
  end
  if parts[6] ~= '' then
    for _, entry in ipairs(split(parts[6], ';')) do
      local s = split(entry, ',')
      local node = s[7]
      if node == nil or node == '' then node = string.match(s[1], '^[^-]*') end
      record.entries[#record.entries + 1] = { session = s[1], device = (s[2] or '') ~= '' and s[2] or 'default', conn = number(s[3]) or 1,
        idle = s[4] == 'i', deadline = number(s[5]), heard = number(s[6]), node = node }
    end
  end
  return record
end

local function write_record(record)
  local manual = ''
  if record.manual then
    local m = record.manual
    manual = join({ m.status == '' and 'a' or m.status, m.rev > 0 and hex(m.rev) or '', hex(m.till), m.text }, 4)
  end
  local entries = {}
  for index, s in ipairs(record.entries) do
    local node = s.node
    if node == string.match(s.session, '^[^-]*') then node = '' end
    entries[index] = join({ s.session, s.device ~= 'default' and s.device or '', s.conn ~= 1 and hex(s.conn) or '',
                          s.idle and 'i' or '', hex(s.deadline), hex(s.heard), node }, 7)
  end
  local own = record.own == record.face and '' or write_face(record.own)
  return table.concat({ write_face(record.face), own, record.name, manual, hex(record.heard),
                        table.concat(entries, ';') }, '|')
end

local function devices_of(record)
  local found, list = {}, {}
  for _, entry in ipairs(record.entries) do
    if not found[entry.device] then
      found[entry.device] = true
      list[#list + 1] = entry.device
    end
  end
  table.sort(list)
  return table.concat(list, ',')
end

-- Return the data of a user that nodes keep besides the faces. A change is published to nodes only, not to clients.
local function told(record)
  return devices_of(record) .. '|' .. record.name
end

local OFF_MS = 5000  -- tolerated difference of a node's estimate, because messages wait and clocks are slewed

-- Return the engine's time: the time of Redis plus the partition's correction (`~clock`). The correction keeps the time
-- continuous when the server's clock is set or another server takes over. nil if the node's estimate differs too much:
-- nothing may then expire until the correction is updated.
local function clock(nodes_key, expected)
  local t = redis.call('TIME')
  local now = t[1] * 1000 + math.floor(t[2] / 1000) + (redis.call('HGET', nodes_key, '~clock') or 0)
  if expected ~= '' and math.abs(now - expected) > OFF_MS then return nil end
  return now
end

local function other_time()
  return redis.error_reply('CLOCK the time has jumped')
end

-- Return the number of buckets of a partition, as text. Without an entry there are all: older nodes know no other number.
local function bucket_count(nodes_key)
  return redis.call('HGET', nodes_key, '~buckets') or '128'
end

-- Return an error if the node does not know the current number of buckets. Its keys may then be those of other buckets.
local function misplaced(nodes_key, count)
  local current = bucket_count(nodes_key)
  if current ~= count then return redis.error_reply('BUCKETS ' .. current) end
end

local lives = {}
-- Return the state of a node: alive, or its last renewal and the time at which its sessions stop counting.
local function life_of(nodes_key, node)
  local life = lives[node]
  if life == nil then
    local text = redis.call('HGET', nodes_key, node)
    if text == 'live' then
      life = { alive = true }
    elseif text then
      local parts = split(text, ',')
      life = { renewed = number(parts[1]), ends = number(parts[2]) }
    else
      life = { ends = 0, unknown = true }
    end
    lives[node] = life
  end
  return life
end

local function fenced(nodes_key, node)
  local life = life_of(nodes_key, node)
  if life.alive then return nil end
  return redis.error_reply((life.unknown and 'UNKNOWN ' or 'FENCED ') .. node)
end

local function prune(record, nodes_key, now)
  local kept = {}
  for _, entry in ipairs(record.entries) do
    local life = life_of(nodes_key, entry.node)
    local heard
    if entry.deadline and entry.deadline <= now then
      heard = entry.heard or now
    elseif not life.alive and life.ends <= now then
      heard = entry.heard or life.renewed or now
    end
    if heard then
      record.heard = math.max(record.heard or 0, heard)
    else
      kept[#kept + 1] = entry
    end
  end
  local dropped = #record.entries - #kept
  record.entries = kept
  return dropped
end

local function next_face(old, state, manual, version, now, seen, since)
  local text = state ~= 'f' and manual.text or ''
  if state == old.state and text == old.text and manual.status == old.status and manual.till == old.till then
    return old
  end
  local same = state == old.state
  local last = nil
  if state == 'f' then
    if same then last = old.seen else last = seen end
  end
  if same and old.since then since = old.since end
  return { state = state, since = since, seen = last, version = version, text = text,
           status = manual.status, till = manual.till }
end

-- Return the same state with another version.
local function renewed(face, version)
  return { state = face.state, since = face.since, seen = face.seen, version = version, text = face.text,
           status = face.status, till = face.till }
end

local function true_state(record)
  if #record.entries == 0 then return 'f' end
  if record.manual.status == 'b' then return 'b' end
  for _, entry in ipairs(record.entries) do
    if not entry.idle then return 'o' end
  end
  return 'i'
end

local DAY_MS = 86400000
local CROWDED = 32  -- users of a bucket; with more, the partition gets a further bucket

local crowded  -- 1 if the verb found a bucket with too many users
local function check_size(count, bucket)
  if count ~= '128' and #redis.call('HVALS', bucket) > CROWDED then crowded = 1 end
end

-- Check the size of a bucket one of eight times, because HVALS reads the whole bucket. HLEN would need a right that
-- Redis users of older versions lack.
local function sample_size(v, bucket)
  if redis.call('TIME')[2] % 8 == 0 then check_size(v.count, bucket) end
end

local function keep(v, record)
  if #record.entries == 0 then
    redis.call('HDEL', v.presence, v.field)
    redis.call('HSET', v.seen, v.field, write_face(record.face) .. '|' .. record.name)
    sample_size(v, v.seen)
    return
  end
  redis.call('HSET', v.presence, v.field, write_record(record))
  if record.fresh then sample_size(v, v.presence) end
  if record.fresh or v.restoring then
    redis.call('HDEL', v.seen, v.field)
    redis.call('PEXPIRE', v.presence, DAY_MS)  -- removes the bucket if no node ever returns
  end
end

-- Set if the verb made its user online (1) or offline (0) for others, or its room occupied (1) or empty (0). Only the
-- calling node receives it, with the result of the verb. Restored data does not count as a change.
local turned

local function answer(what)
  if turned or crowded then return { '!', turned or '', what, crowded } end
  return what
end

-- Update the record to the current time, store it and publish changes. `before` is the result of `told` before the verb.
-- A restored record keeps its `since`. Its change is marked as restored, because more sessions of the user may follow.
local function settle(v, record, before)
  local now = v.now
  prune(record, v.nodes, now)
  local manual = record.manual
  turned = nil
  -- The user is offline until the status is known. Then the state changes, and so does all that is published.
  if not manual then return keep(v, record) end
  if manual.till and manual.till <= now then
    manual = { status = '', rev = manual.rev, text = '' }
    record.manual = manual
  end
  local state = true_state(record)
  local shown = manual.status == 'i' and 'f' or state
  local version = math.max(record.face.version + 1, record.own.version + 1, now)
  local seen = record.heard
  if state ~= 'f' then seen = now end
  local since = v.since or now
  local face = next_face(record.face, shown, manual, version, now, seen, since)
  local own = next_face(record.own, state, manual, version, now, record.heard, since)
  local public = face.state ~= record.face.state or face.text ~= record.face.text
  local private = own ~= record.own
  if (face.state == 'f') ~= (record.face.state == 'f') and not v.restoring then turned = face.state == 'f' and 0 or 1 end
  -- After a failover the record may be older than states that clients know, and clients ignore lower versions. So a state
  -- from before the loss gets a new version. An invisible user keeps the version that others see: a new one would show
  -- that the user has a session.
  if v.lost_at then
    if not public and record.face.version < v.lost_at and record.face.state ~= 'f' then
      face, public = renewed(record.face, version), true
    end
    if own.version < (public and version or v.lost_at) and own.state ~= 'f' then
      own, private = renewed(own, version), true
    end
  end
  if public then record.face = face end
  record.own = own
  if write_face(own) == write_face(record.face) then record.own = record.face end
  keep(v, record)
  if public or private or told(record) ~= before then
    local body = table.concat({ write_face(record.face), write_face(record.own), record.name, devices_of(record),
                                public and '1' or '', private and '1' or '', v.restoring and '1' or '' }, '|')
    redis.call(v.publish, v.channel, 'c' .. redis.sha1hex(v.key .. v.channel .. '|' .. body) .. body)
  end
end

-- Read the record of a user; nil if the user has no sessions.
local function load_record(v)
  local text = redis.call('HGET', v.presence, v.field)
  if not text then return nil end
  return read_record(text)
end

local function load_seen(v)
  local text = redis.call('HGET', v.seen, v.field)
  if not text then return { state = 'f', version = 0, text = '', status = '' }, '' end
  local parts = split(text, '|')
  return read_face(parts[1]), parts[2]
end

local function fresh_record(v)
  local face, name = load_seen(v)
  return { face = face, own = face, name = name, entries = {}, fresh = true }
end

-- Return the common arguments of a verb on one user; or nil, and the error to return.
local function verb()
  local refused = misplaced(KEYS[2], ARGV[6])
  if refused then return nil, refused end
  local now = clock(KEYS[2], ARGV[1])
  if not now then return nil, other_time() end
  return { presence = KEYS[1], nodes = KEYS[2], seen = KEYS[3], now = now, field = ARGV[2], channel = ARGV[3],
           publish = ARGV[4], key = ARGV[5], count = ARGV[6] }
end

local function find_entry(record, session, node, conn)
  for _, entry in ipairs(record.entries) do
    if entry.session == session and (node == nil or (entry.node == node and entry.conn == conn)) then return entry end
  end
end

-- Return the record, or VISIBLE|NAME of a user without sessions, or an empty string.
local function snapshot(v)
  return redis.call('HGET', v.presence, v.field) or redis.call('HGET', v.seen, v.field) or ''
end

-- Parse a user's entries in a room: SESSION;SESSION…. An entry is a session, with its incarnation after a comma unless the id
-- names it. Returns the entries that count, and whether all other entries belong to dead nodes. An unknown node may return.
local function entries_in_room(text, nodes_key, now)
  local entries, over = {}, true
  for entry in string.gmatch(text, '[^;]+') do
    local session, node = string.match(entry, '^([^,]*),?(.*)$')
    if node == '' then node = string.match(session, '^[^-]*') end
    local life = life_of(nodes_key, node)
    if life.alive or life.ends > now then
      entries[#entries + 1] = { session = session, text = entry, node = node }
    elseif life.unknown then
      over = false
    end
  end
  return entries, over
end

-- A large room has an index beside the hash of its users: a sorted set of the users, by id. The last members of the index are
-- marks: `~INCARNATION` for each node that may have sessions in the room, and `~!TOKEN` while a node builds the index. Nodes of
-- version 0.1.0-rc.1 do not write the index. All others have a field `~INCARNATION` in the nodes table.
local function indexes(nodes_key, node)
  return redis.call('HGET', nodes_key, '~' .. node)
end

-- Return the known nodes that do not write the index.
local function unindexed(nodes_key)
  local fields, known, found = redis.call('HGETALL', nodes_key), {}, {}
  for at = 1, #fields, 2 do known[fields[at]] = true end
  for node in pairs(known) do
    if string.sub(node, 1, 1) ~= '~' and not known['~' .. node] then found[#found + 1] = node end
  end
  return found
end

-- Return the users after `after` in the index (all: empty), at most `most`.
local function indexed_users(index_key, after, most)
  return redis.call('ZRANGEBYLEX', index_key, after == '' and '-' or '(' .. after, '(~', 'LIMIT', 0, most)
end

-- Return the marks of a complete index; nil if there is no index, or it is being built.
local function index_marks(index_key)
  local marks = redis.call('ZRANGEBYLEX', index_key, '[~', '+')
  if #marks > 0 and string.sub(marks[1], 1, 2) ~= '~!' then return marks end
end

local FEW = 500  -- users below which a room needs no index; a room with more than twice as many is large

-- Remove a user without sessions from a room. Sets `turned` if the room is empty now.
local function clear_user(user)
  redis.call('HDEL', KEYS[1], user)
  local was_indexed = redis.call('ZREM', KEYS[3], user) == 1
  if redis.call('EXISTS', KEYS[1]) == 0 then
    turned = 0
    redis.call('DEL', KEYS[3])
  elseif was_indexed and redis.call('HLEN', KEYS[1]) < FEW then
    redis.call('DEL', KEYS[3])
  end
end

-- Return the users among fields and values of the hash who are in the room. Remove users whose nodes are dead, without a
-- message: every node reads the users. Calls `note` with the nodes of each user's sessions, if given.
local function users_there(found, now, note)
  local users, match = {}, string.match
  for index = 1, #found, 2 do
    local user, text = found[index], found[index + 1]
    -- The common case: one session, on the node that its id names.
    local node = match(text, '^([^-,;]*)%-[^,;]*$')
    if node and life_of(KEYS[2], node).alive then
      users[#users + 1] = user
      if note then note(node) end
    else
      local entries, over = entries_in_room(text, KEYS[2], now)
      if #entries > 0 then
        users[#users + 1] = user
        for _, entry in ipairs(note and entries or {}) do note(entry.node) end
      elseif over then
        clear_user(user)
      end
    end
  end
  return users
end

-- Publish that a user entered a room (1; r: restored) or left it (empty). For the verbs on rooms.
local function tell_room(user, entered)
  local channel, body = ARGV[2], user .. '|' .. entered
  redis.call(ARGV[3], channel, 'p' .. redis.sha1hex(ARGV[4] .. channel .. '|' .. body) .. body)
end
