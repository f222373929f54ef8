-- List a tenant's users in the presence buckets of some partitions, starting at the bucket with one number.
-- Returns {partitions read completely, next number of the following partition, users read, users of the tenant that are not
-- offline, buckets read, then for each bucket with users of the tenant: {field, record, …}}.
-- KEYS: for each partition: nodes, first presence bucket. The other buckets have the same tag and differ in the last two digits
-- ARGV: prefix of the tenant's fields, first number in the first partition, number of users after which no further bucket is
--       read, number of records to return (0: only count users)
local prefix, first, most, wanted = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local size, sub, call = #prefix, string.sub, redis.call
local answer, read, online, given, buckets = { 0, 0, 0, 0, 0 }, 0, 0, 0, 0

local function look(key)
  local all, found = call('HGETALL', key), {}
  for at = 1, #all, 2 do
    if sub(all[at], 1, size) == prefix then
      if sub(all[at + 1], 1, 1) ~= 'f' then online = online + 1 end
      found[#found + 1] = all[at]
      found[#found + 1] = all[at + 1]
    end
  end
  read, buckets = read + #all / 2, buckets + 1
  if wanted > 0 and #found > 0 then
    given = given + #found / 2
    answer[#answer + 1] = found
  end
end

local function finish(whole, number)
  answer[1], answer[2], answer[3], answer[4], answer[5] = whole, number, read, online, buckets
  return answer
end

for index = 1, #KEYS, 2 do
  local count, whole = tonumber(call('HGET', KEYS[index], '~buckets') or 128), 1
  while 2 * whole <= count do whole = 2 * whole end
  local width, base = 128 / whole, sub(KEYS[index + 1], 1, -3)
  local divided = (count - whole) * width  -- ranges of the numbers below are divided into halves (keys.bucket_with)
  local number = index == 1 and first or 0
  while number < 128 do
    if read >= most or (wanted > 0 and given >= wanted) then return finish((index - 1) / 2, number) end
    local each = number < divided and width / 2 or width
    local bucket = number - number % each
    look(base .. string.format('%02x', bucket))
    number = bucket + each
  end
end
return finish(#KEYS / 2, 0)
