-- What wrk sends: chat requests of a given size, half of which end in a way no other does; or all of which are new.
-- Arguments: path, bytes of the body, what tells this run's prompts from all others', "half" or "all", headers NAME=VALUE.

local BASES = 16
-- The new tail of a prompt, as a part of it.
local TAIL = 10

local heads, tails = {}, {}
local count, fill, run, path, all = 0, 0, "", "", false

function init(arguments)
  path, run, all = arguments[1], arguments[3], arguments[4] == "all"
  wrk.headers["content-type"] = "application/json"
  for at = 5, #arguments do
    local name, value = arguments[at]:match("^([^=]+)=(.*)$")
    wrk.headers[name] = value
  end
  local size = tonumber(arguments[2])
  local frame = #body("", "")
  fill = all and math.max(size - frame, 48) or math.max(math.floor((size - frame) / TAIL), 24)
  for base = 1, BASES do
    local text = text_of("prompt " .. base .. " ", math.max(size - frame, 48))
    heads[base] = text:sub(1, #text - fill)
    tails[base] = text:sub(#text - fill + 1)
  end
end

function text_of(word, length)
  return string.rep(word, math.ceil(length / #word)):sub(1, length)
end

function body(head, tail)
  return '{"model":"bench","stream":false,"messages":[{"role":"user","content":"' .. head .. tail .. '"}]}'
end

function request()
  count = count + 1
  local base = count % BASES + 1
  local tail = tails[base]
  if all or math.floor(count / BASES) % 2 == 1 then
    tail = text_of(run .. "-" .. count .. " ", fill)
  end
  return wrk.format("POST", path, nil, body(heads[base], tail))
end

function done(summary, latency)
  local errors = summary.errors
  io.write(string.format(
    '\nresult {"requests":%d,"micros":%d,"p50":%d,"p99":%d,"errors":%d}\n',
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(99),
    errors.connect + errors.read + errors.write + errors.status + errors.timeout))
end
