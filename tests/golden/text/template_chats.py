"""Conversations for make_templates.py: turns, tools and thinking as clients send them."""

TOOLS = [
    {"type": "function", "function": {
        "name": "get_weather", "description": "The weather of a town, now.",
        "parameters": {"type": "object", "properties": {
            "town": {"type": "string", "description": "its \"name\""},
            "unit": {"type": "string", "enum": ["celsius", "kelvin"]},
            "days": {"type": "array", "items": {"type": "integer"}}}, "required": ["town"]}}},
    {"type": "function", "function": {
        "name": "add", "description": "a + b < c & d",
        "parameters": {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}}}},
]


def user(text):
    return {"role": "user", "content": text}


def system(text):
    return {"role": "system", "content": text}


def assistant(text, **more):
    return {"role": "assistant", "content": text, **more}


def call(name, arguments, id="call00001"):
    return {"type": "function", "id": id, "function": {"name": name, "arguments": arguments}}


def tool(text, name="get_weather", id="call00001"):
    return {"role": "tool", "content": text, "name": name, "tool_call_id": id}


ONE_CALL = [user("How warm is it in Kiel?"),
            assistant(None, tool_calls=[call("get_weather", {"town": "Kiel", "days": [1, 2.5, True, None]})]),
            tool('{"celsius": 7, "sky": "\u2601 <low>"}')]

# name: (messages, what else the template is given)
CHATS = {
    "question": ([user("  What is\nthe capital? ")], {}),
    "system, turns": ([system(" Be terse.\n"), user("Hi"), assistant("Hello\u00a0you "), user("'Again' \"so\" \\ \u00e9\U0001f642")], {}),
    "no header": ([user("Hi"), assistant("Hello")], {"add_generation_prompt": False}),
    "tools": ([system("You help."), user("Warm?")], {"tools": TOOLS}),
    "a call and its result": (ONE_CALL, {"tools": TOOLS}),
    "calls, results, answer": (
        [user("Sum?"),
         assistant("Let me see.", tool_calls=[call("add", {"a": 1, "b": -2.5e-7}), call("add", {"a": 10**15, "b": 1e16}, "call00002")]),
         tool("3", "add"), tool("4.0", "add", "call00002"), assistant("Seven."), user("Thanks")],
        {"tools": TOOLS[1:]}),
    "thoughts": ([user("q"), assistant("<think>\nlet me see\n</think>\n\nthe answer"), user("more"),
                  assistant("<think>\n\n</think>\n\nyes"), user("go on")], {}),
    "no thinking": ([user("q")], {"enable_thinking": False, "thinking": True}),
    "reasoning apart": ([user("q"), assistant("the answer", reasoning_content="let me see\n"), user("more")], {}),
    "two users": ([user("one"), user("two")], {}),
    "goes on": ([user("Count"), assistant("One, two, ")], {"continue_final_message": True}),
}
