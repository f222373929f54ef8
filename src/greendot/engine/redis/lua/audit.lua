-- The sessions one node has in some buckets. Answers field, session, connection, field, …
-- KEYS: presence buckets
-- ARGV: incarnation
local answers = {}
for _, bucket in ipairs(KEYS) do
  local found = redis.call('HGETALL', bucket)
  for index = 1, #found, 2 do
    if string.find(found[index + 1], ARGV[1], 1, true) then
      for _, seat in ipairs(read_record(found[index + 1]).seats) do
        if seat.node == ARGV[1] then
          answers[#answers + 1] = found[index]
          answers[#answers + 1] = seat.session
          answers[#answers + 1] = seat.conn
        end
      end
    end
  end
end
return answers
