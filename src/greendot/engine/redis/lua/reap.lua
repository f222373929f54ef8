-- One bucket: settle every user something has run out for, forget last-seens past their time.
-- Answers {sessions ended, users gone offline, last-seens forgotten}.
-- KEYS: presence bucket, nodes, seen bucket
-- ARGV: time, publish command, bus key, channels' beginning, how long a last-seen is kept (ms; empty: look another time)
local now = clock(KEYS[2], ARGV[1])
if not now then return other_time() end
local ended, gone, forgotten = 0, 0, 0

-- Most seats have three fields, and their node lives: those are passed over without taking the record apart.
local function due(text)
  for seat in string.gmatch(string.match(text, '[^|]*$'), '[^;]+') do
    local node, rest = string.match(seat, '^([^,-]*)[^,]*,[^,]*,[^,]*,?(.*)$')
    if rest ~= '' then
      local deadline, other = string.match(rest, '^[^,]*,?([^,]*),?[^,]*,?([^,]*)')
      if deadline ~= '' and tonumber(deadline, 16) <= now then return true end
      if other ~= '' then node = other end
    end
    local life = life_of(KEYS[2], node)
    if not life.alive and life.ends <= now then return true end
  end
  return false
end

local found = redis.call('HGETALL', KEYS[1])
for index = 1, #found, 2 do
  if due(found[index + 1]) then
    local field = found[index]
    local record = read_record(found[index + 1])
    local before = told(record)
    ended = ended + prune(record, KEYS[2], now)
    if #record.seats == 0 then gone = gone + 1 end
    settle({ presence = KEYS[1], nodes = KEYS[2], seen = KEYS[3], now = now, field = field, channel = ARGV[4] .. field,
             publish = ARGV[2], key = ARGV[3] }, record, before)
  end
end
if ARGV[5] ~= '' then
  local horizon = now - tonumber(ARGV[5])
  local seen = redis.call('HGETALL', KEYS[3])
  for index = 1, #seen, 2 do
    local version = string.match(seen[index + 1], '^f(%x*)')
    if (tonumber(version or '', 16) or 0) < horizon then
      redis.call('HDEL', KEYS[3], seen[index])
      forgotten = forgotten + 1
    end
  end
end
return { ended, gone, forgotten }
