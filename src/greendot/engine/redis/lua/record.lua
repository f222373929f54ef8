-- Shared by the presence verbs (put in front of each): one user's record, as greendot.core.presence has it.
--
-- A record is text:  FACE|OWN|NAME|MANUAL|HEARD|SEAT;SEAT…
--   FACE    state letter (o online, i idle, b busy, f offline) and version, then since, last seen, text, status
--           letter (b, i; empty: auto), until.  Empty since: the version.  OWN the same; empty: equal to FACE
--   MANUAL  status letter (a, b, i), revision, until, text; empty: not known yet
--   HEARD   when the last session that left was heard
--   SEAT    session, device, connection, i if idle, deadline, heard, incarnation (empty: the session id names it)
-- Numbers are hexadecimal, fields of a part are separated by commas, empty ones at the end are left out. The node
-- escapes | , ; and % in names and texts.

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
  local record = { face = read_face(parts[1]), name = parts[3], heard = number(parts[5]), seats = {} }
  record.own = parts[2] == '' and record.face or read_face(parts[2])
  if parts[4] ~= '' then
    local m = split(parts[4], ',')
    record.manual = { status = m[1] == 'a' and '' or m[1], rev = number(m[2]) or 0, till = number(m[3]), text = m[4] or '' }
  end
  if parts[6] ~= '' then
    for _, seat in ipairs(split(parts[6], ';')) do
      local s = split(seat, ',')
      local node = s[7]
      if node == nil or node == '' then node = string.match(s[1], '^[^-]*') end
      record.seats[#record.seats + 1] = { session = s[1], device = s[2] or '', conn = number(s[3]) or 0,
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
  local seats = {}
  for index, s in ipairs(record.seats) do
    local node = s.node
    if node == string.match(s.session, '^[^-]*') then node = '' end
    seats[index] = join({ s.session, s.device, hex(s.conn), s.idle and 'i' or '', hex(s.deadline), hex(s.heard), node }, 7)
  end
  local own = record.own == record.face and '' or write_face(record.own)
  return table.concat({ write_face(record.face), own, record.name, manual, hex(record.heard),
                        table.concat(seats, ';') }, '|')
end

local function devices_of(record)
  local found, list = {}, {}
  for _, seat in ipairs(record.seats) do
    if not found[seat.device] then
      found[seat.device] = true
      list[#list + 1] = seat.device
    end
  end
  table.sort(list)
  return table.concat(list, ',')
end

-- What nodes keep of a user besides the faces: when it changes they are told, though nobody else is.
local function told(record)
  return devices_of(record) .. '|' .. record.name
end

-- The engine's time: Redis' own, moved by what a test asks for.
local function clock(shift)
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000) + tonumber(shift)
end

local lives = {}
-- nil while the node lives, else its last renewal and from when on its sessions do not count.
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
      life = { ends = 0 }
    end
    lives[node] = life
  end
  return life
end

local function prune(record, nodes_key, now)
  local kept = {}
  for _, seat in ipairs(record.seats) do
    local life = life_of(nodes_key, seat.node)
    local heard
    if seat.deadline and seat.deadline <= now then
      heard = seat.heard or now
    elseif not life.alive and life.ends <= now then
      heard = seat.heard or life.renewed or now
    end
    if heard then
      record.heard = math.max(record.heard or 0, heard)
    else
      kept[#kept + 1] = seat
    end
  end
  record.seats = kept
end

local function next_face(old, state, manual, version, now, seen)
  local text = state ~= 'f' and manual.text or ''
  if state == old.state and text == old.text and manual.status == old.status and manual.till == old.till then
    return old
  end
  local same = state == old.state
  local last = nil
  if state == 'f' then
    if same then last = old.seen else last = seen end
  end
  local since = now
  if same then since = old.since end
  return { state = state, since = since, seen = last, version = version, text = text,
           status = manual.status, till = manual.till }
end

local function true_state(record)
  if #record.seats == 0 or not record.manual then return 'f' end
  if record.manual.status == 'b' then return 'b' end
  for _, seat in ipairs(record.seats) do
    if not seat.idle then return 'o' end
  end
  return 'i'
end

-- Bring the record up to now, keep it, tell what is new. `before` is what was told before the verb.
local function settle(record, before, keys, now, channel, publish, key)
  prune(record, keys.nodes, now)
  local manual = record.manual
  if manual and manual.till and manual.till <= now then
    manual = { status = '', rev = manual.rev, text = '' }
    record.manual = manual
  end
  manual = manual or { status = '', rev = 0, text = '' }
  local state = true_state(record)
  local shown = manual.status == 'i' and 'f' or state
  local version = math.max(record.face.version + 1, record.own.version + 1, now)
  local seen = record.heard
  if state ~= 'f' then seen = now end
  local face = next_face(record.face, shown, manual, version, now, seen)
  local own = next_face(record.own, state, manual, version, now, record.heard)
  local public = face.state ~= record.face.state or face.text ~= record.face.text
  local private = own ~= record.own
  if public then record.face = face end
  record.own = own
  if write_face(own) == write_face(record.face) then record.own = record.face end
  local now_told = told(record)
  if #record.seats == 0 then
    redis.call('HDEL', keys.presence, keys.field)
    redis.call('HSET', keys.seen, keys.field, write_face(record.face) .. '|' .. record.name)
  else
    redis.call('HSET', keys.presence, keys.field, write_record(record))
    redis.call('HDEL', keys.seen, keys.field)
  end
  if public or private or now_told ~= before then
    local body = table.concat({ write_face(record.face), write_face(record.own), record.name, devices_of(record),
                                public and '1' or '', private and '1' or '' }, '|')
    redis.call(publish, channel, 'c' .. redis.sha1hex(key .. channel .. body) .. body)
  end
end

-- The record of a user, nil if there are no sessions.
local function load_record(keys)
  local text = redis.call('HGET', keys.presence, keys.field)
  if not text then return nil end
  return read_record(text)
end

local function load_seen(keys)
  local text = redis.call('HGET', keys.seen, keys.field)
  if not text then return { state = 'f', version = 0, text = '', status = '' }, '' end
  local parts = split(text, '|')
  return read_face(parts[1]), parts[2]
end

-- What a reader gets: FACE|OWN|NAME|DEVICES
local function snapshot(keys, record)
  if record and #record.seats > 0 then
    return table.concat({ write_face(record.face), write_face(record.own), record.name, devices_of(record) }, '|')
  end
  local face, name = load_seen(keys)
  local text = write_face(face)
  return text .. '|' .. text .. '|' .. name .. '|'
end
