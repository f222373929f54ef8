-- Sweep one bucket: settle every user with an expired session, and remove expired last-seen times.
-- Returns {sessions ended, users gone offline, last-seen times removed, fields of users who became offline to others,
-- 1 if a bucket has too many users}.
-- KEYS: presence bucket, nodes, seen bucket
-- ARGV: time, publish command, bus key, prefix of channels, number of buckets that the node knows, retention of last-seen
--   times (ms; empty: do not remove any), incarnations: if given, only records that name one of them are processed
local refused = misplaced(KEYS[2], ARGV[5])
if refused then return refused end
local now = clock(KEYS[2], ARGV[1])
if not now then return other_time() end
local publish, key, channels, retention = ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[6])
local ended, gone, forgotten, seen_going = 0, 0, 0, {}
local match, gmatch, sha1hex, call = string.match, string.gmatch, redis.sha1hex, redis.call

-- After the death of a node there are thousands of similar records: one session, an automatic status, the same face for
-- all readers. They are ended without parsing the whole record. The result is the same as that of `settle`.
local SIMPLE = '^[oi](%x+)||([^|]*)|a,?%x*|(%x*)|([^-,;|]*)%-[^,;|]*,?[^,;|]*,?%x*,?i?$'
local left, kept = {}, {}  -- fields to delete from the presence bucket; fields and values to add to the seen bucket

local function end_simple(field, version, name, heard, life)
  local after = math.max(tonumber(version, 16) + 1, now)
  local seen = math.max(number(heard) or 0, life.renewed or now)
  local face = 'f' .. hex(after) .. ',' .. (after == now and '' or hex(now)) .. ',' .. hex(seen)
  left[#left + 1] = field
  seen_going[#seen_going + 1] = field
  kept[#kept + 1] = field
  kept[#kept + 1] = face .. '|' .. name
  local channel, body = channels .. field, face .. '|' .. face .. '|' .. name .. '||1|1|'
  call(publish, channel, 'c' .. sha1hex(key .. channel .. '|' .. body) .. body)
end

local function due(text)
  for entry in gmatch(match(text, '[^|]*$'), '[^;]+') do
    local node, rest = match(entry, '^[^,-]*'), match(entry, '^[^,]*,[^,]*,[^,]*,(.*)$')
    if rest then
      local deadline, other = match(rest, '^[^,]*,?([^,]*),?[^,]*,?([^,]*)')
      if deadline ~= '' and tonumber(deadline, 16) <= now then return true end
      if other ~= '' then node = other end
    end
    local life = life_of(KEYS[2], node)
    if not life.alive and life.ends <= now then return true end
  end
  return false
end

local function end_any(field, text)
  local record = read_record(text)
  local before = told(record)
  ended = ended + prune(record, KEYS[2], now)
  if #record.entries == 0 then gone = gone + 1 end
  settle({ presence = KEYS[1], nodes = KEYS[2], seen = KEYS[3], now = now, field = field, channel = channels .. field,
           publish = publish, key = key, count = ARGV[5] }, record, before)
  if turned == 0 then seen_going[#seen_going + 1] = field end
end

local function concerned(text)
  for index = 7, #ARGV do
    if string.find(text, ARGV[index], 1, true) then return true end
  end
  return #ARGV < 7
end

local found = call('HGETALL', KEYS[1])
for index = 1, #found, 2 do
  local field, text = found[index], found[index + 1]
  local version, name, heard, node
  local concerned = concerned(text)
  if concerned then version, name, heard, node = match(text, SIMPLE) end
  if version then
    local life = life_of(KEYS[2], node)
    if not life.alive and life.ends <= now then
      ended, gone = ended + 1, gone + 1
      end_simple(field, version, name, heard, life)
    end
  elseif concerned and due(text) then
    end_any(field, text)
  end
end
for at = 1, #left, 1000 do  -- the number of values for unpack is limited
  call('HDEL', KEYS[1], unpack(left, at, math.min(at + 999, #left)))
  call('HSET', KEYS[3], unpack(kept, 2 * at - 1, math.min(2 * at + 1998, #kept)))
  check_size(ARGV[5], KEYS[3])
end

if retention then
  local horizon = now - retention
  local seen = call('HGETALL', KEYS[3])
  for index = 1, #seen, 2 do
    local version = match(seen[index + 1], '^f(%x*)')
    if (tonumber(version or '', 16) or 0) < horizon then
      call('HDEL', KEYS[3], seen[index])
      forgotten = forgotten + 1
    end
  end
end
return { ended, gone, forgotten, seen_going, crowded }
