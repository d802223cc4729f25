// What an engine says of itself.

#include "runtime/engines/engine_facts.hpp"

#include <doctest/doctest.h>

using namespace mooncaf;

TEST_CASE("the model is found by name, or is the first") {
  const auto body = R"({"object":"list","data":[{"id":"a","max_model_len":8192},{"id":"b"}]})";
  CHECK(read_models(body, "")->model == "a");
  CHECK(read_models(body, "")->context_tokens == 8192);
  CHECK(read_models(body, "b")->model == "b");
  CHECK(read_models(body, "b")->context_tokens == 0);
  CHECK(read_models(body, "c").error().detail == "GET /v1/models: the engine serves no 'c'; it has a, b");
  CHECK(read_models(R"({"data":[]})", "").error().code == ec::not_found);
  CHECK(read_models("<html>", "").error().code == ec::corrupt);
  CHECK(read_models(R"({"data":[1,{"id":2}]})", "").error().code == ec::not_found);
}

TEST_CASE("an engine says in its list of models whose it is") {
  const auto told = [](const char* owner) {
    return read_models(
        std::string{R"({"data":[{"id":"m","owned_by":")"} + owner + R"(","max_model_len":512}]})", "");
  };
  CHECK((told("sglang")->make == engine_make::sglang && told("sglang")->context_tokens == 512));
  CHECK(told("vllm")->make == engine_make::vllm);
  CHECK(read_models(R"({"data":[{"id":"m","owned_by":7}]})", "")->make == engine_make::vllm);
}

TEST_CASE("the size of its cache is in its metrics") {
  const std::string metrics =
      "# HELP vllm:cache_config_info Information of the LLMEngine CacheConfig\n"
      "vllm:cache_config_info{block_size=\"32\",cache_dtype=\"auto\",engine=\"0\",mamba_block_size=\"None\","
      "num_gpu_blocks=\"1400\",num_gpu_blocks_override=\"None\"} 1.0\n"
      "vllm:cache_config_info{mamba_block_size=\"7\",block_size=\"32\",engine=\"1\",num_gpu_blocks=\"100\"} "
      "1.0\n";
  CHECK(cache_tokens_in(metrics) == 1500 * 32);
  CHECK(cache_tokens_in("sglang:max_total_num_tokens{engine_type=\"unified\",tp_rank=\"0\"} 8192.0\n") ==
        8192);
  CHECK(cache_tokens_in("") == 0);
  CHECK(cache_tokens_in("vllm:cache_config_info{block_size=\"x\",num_gpu_blocks=\"\"}") == 0);
}

TEST_CASE("requests of all its parts, running and waiting, are counted from its metrics") {
  const std::string metrics =
      "# HELP vllm:num_requests_running Number of requests in model execution batches.\n"
      "# TYPE vllm:num_requests_running gauge\n"
      "vllm:num_requests_running{engine=\"0\",model_name=\"a } 7\"} 3.0\n"
      "vllm:num_requests_running{engine=\"1\",model_name=\"a\"} 1.0\n"
      "vllm:num_requests_waiting{engine=\"0\",model_name=\"a\"} 2.0\n"
      "vllm:num_requests_waiting_by_reason{engine=\"0\",reason=\"capacity\"} 2.0\n";
  CHECK(requests_in(metrics) == 6);
  CHECK(requests_in("vllm:num_requests_running 5") == 5);
  CHECK(requests_in(
            "sglang:num_running_reqs{tp_rank=\"0\"} 2.0\nsglang:num_queue_reqs{tp_rank=\"0\"} 1.0\n") == 3);
  CHECK(requests_in("vllm:num_requests_running{} 0.0\n") == 0);
  for (const auto* nothing :
       {"", "other 5\n", "vllm:num_requests_running{} NaN\n", "vllm:num_requests_running{}\n",
        "vllm:num_requests_running{} -1\n", "vllm:num_requests_running{} 1e300\n"}) {
    CAPTURE(nothing);
    CHECK(!requests_in(nothing));
  }
}
