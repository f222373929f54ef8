-- Divide buckets of a partition, so that it has more of them: `keys.bucket_with`. Returns the number of buckets.
-- KEYS: nodes, then for each bucket concerned: presence bucket, seen bucket
-- ARGV: number of buckets, new number, new epoch (if given: nodes that know only 128 buckets may have written records)
local count, wanted, epoch = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
if bucket_count(KEYS[1]) ~= ARGV[1] then return tonumber(bucket_count(KEYS[1])) end
local presence, seen = {}, {}
for index = 2, #KEYS, 2 do
  local bucket = tonumber(string.sub(KEYS[index], -2), 16)
  presence[bucket], seen[bucket] = KEYS[index], KEYS[index + 1]
end

-- CRC-32 of zlib, four bits at a time.
local POWERS = { [0] = 0, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4, 0x4db26158, 0x5005713c, 0xedb88320,
                 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c, 0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c }
local band, bxor, rshift, byte = bit.band, bit.bxor, bit.rshift, string.byte

local function number_of(field)
  local crc = -1
  for index = 1, #field do
    crc = bxor(crc, byte(field, index))
    crc = bxor(POWERS[band(crc, 15)], rshift(crc, 4))
    crc = bxor(POWERS[band(crc, 15)], rshift(crc, 4))
  end
  return band(rshift(bxor(crc, -1), 7), 127)
end

local function move(from, to, first)
  local found, moved = redis.call('HGETALL', from), {}
  for index = 1, #found, 2 do
    if number_of(found[index]) >= first then
      moved[#moved + 1] = found[index]
      redis.call('HSETNX', to, found[index], found[index + 1])  -- an older node may have written a record
    end
  end
  for at = 1, #moved, 1000 do  -- the number of values for unpack is limited
    redis.call('HDEL', from, unpack(moved, at, math.min(at + 999, #moved)))
  end
  return #moved > 0
end

while count < wanted do
  local whole = 1
  while 2 * whole <= count do whole = 2 * whole end
  local width = 128 / whole
  local from = (count - whole) * width
  local to = from + width / 2
  if epoch == '' then redis.call('DEL', presence[to]) end  -- a remainder of lost data: nothing reads this bucket yet
  if move(presence[from], presence[to], to) then redis.call('PEXPIRE', presence[to], DAY_MS) end
  move(seen[from], seen[to], to)
  count = count + 1
end
if wanted == 128 then redis.call('HDEL', KEYS[1], '~buckets') else redis.call('HSET', KEYS[1], '~buckets', wanted) end
if epoch ~= '' then redis.call('HSET', KEYS[1], '~epoch', epoch) end
return wanted
