-- The sessions one node has in a bucket. Answers field, session, connection, field, …
-- KEYS: presence bucket
-- ARGV: incarnation
local answers = {}
local found = redis.call('HGETALL', KEYS[1])
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
return answers
