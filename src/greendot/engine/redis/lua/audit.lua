-- List the sessions of one node in some buckets. Returns field, session, connection, field, …
-- KEYS: presence buckets
-- ARGV: incarnation
local answers = {}
for _, bucket in ipairs(KEYS) do
  local found = redis.call('HGETALL', bucket)
  for index = 1, #found, 2 do
    if string.find(found[index + 1], ARGV[1], 1, true) then
      for _, entry in ipairs(read_record(found[index + 1]).entries) do
        if entry.node == ARGV[1] then
          answers[#answers + 1] = found[index]
          answers[#answers + 1] = entry.session
          answers[#answers + 1] = entry.conn
        end
      end
    end
  end
end
return answers
