-- Job documents for `wrk -s estimate.lua URL -- SHARE`: a share of them new ones (each length asked once), the others
-- repeats of 200. Each thread of wrk counts in steps of its own, so that no two ask for the same new length.
local models = {
  "Qwen/Qwen2.5-7B", "meta-llama/Llama-3.1-8B", "mistralai/Mistral-7B-v0.3", "Qwen/Qwen2.5-14B", "google/gemma-2-9b",
}
local threads = 0

function setup(thread)
  threads = threads + 1
  thread:set("number", threads)
end

function init(arguments)
  fresh = tonumber(arguments[1]) or 0
  math.randomseed(number)
  count = number
  wrk.method, wrk.path = "POST", "/v1/estimate"
  wrk.headers["Content-Type"] = "application/json"
end

function request()
  count = count + 64
  local length = 128 * math.random(1, 40)
  if math.random() < fresh then length = 1000 + count end
  local body = string.format(
    '{"job": {"model": "%s", "method": "lora", "micro_batch": 1, "seq_len": %d, "gpu": "RTX 4090"}}',
    models[count % 5 + 1], length)
  return wrk.format(nil, nil, nil, body)
end

function done(summary, latency)
  io.write(string.format(
    '\n{"requests": %d, "seconds": %.2f, "not_2xx": %d, "broken": %d, "p50_ms": %.1f, "p99_ms": %.1f}\n',
    summary.requests, summary.duration / 1e6, summary.errors.status,
    summary.errors.connect + summary.errors.read + summary.errors.write + summary.errors.timeout,
    latency:percentile(50) / 1e3, latency:percentile(99) / 1e3))
end
