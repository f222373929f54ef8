-- List a tenant's users in the presence buckets of some partitions, starting at one bucket.
-- Returns {partitions read completely, next bucket of the following partition, users read, users of the tenant that are
-- not offline, then for each bucket with users of the tenant: its number, {field, record, …}}.
-- KEYS: for each partition, its first presence bucket. The other buckets have the same tag and differ in the last two digits
-- ARGV: prefix of the tenant's fields, first bucket of the first partition, buckets per partition, number of users after
--       which no further bucket is read, number of records to return (0: only count users)
local prefix, first, buckets = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local most, wanted = tonumber(ARGV[4]), tonumber(ARGV[5])
local size, sub, call = #prefix, string.sub, redis.call
local answer, read, online, given = { 0, 0, 0, 0 }, 0, 0, 0

local function look(key, number)
  local all, found = call('HGETALL', key), {}
  for at = 1, #all, 2 do
    if sub(all[at], 1, size) == prefix then
      if sub(all[at + 1], 1, 1) ~= 'f' then online = online + 1 end
      found[#found + 1] = all[at]
      found[#found + 1] = all[at + 1]
    end
  end
  read = read + #all / 2
  if wanted > 0 and #found > 0 then
    given = given + #found / 2
    answer[#answer + 1] = number
    answer[#answer + 1] = found
  end
end

local function finish(whole, bucket)
  answer[1], answer[2], answer[3], answer[4] = whole, bucket, read, online
  return answer
end

for index = 1, #KEYS do
  local base = sub(KEYS[index], 1, -3)
  for bucket = index == 1 and first or 0, buckets - 1 do
    if read >= most or (wanted > 0 and given >= wanted) then return finish(index - 1, bucket) end
    look(base .. string.format('%02x', bucket), (index - 1) * buckets + bucket)
  end
end
return finish(#KEYS, 0)
