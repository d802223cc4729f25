"""Conversations, and templates that say in few words what the published ones of each family do with them.

Contents are benign: no text of a marker, which Hugging Face would turn into one and mooncaf must not.
"""

TEMPLATES = {
    "qwen25": """\
{%- if messages[0]['role'] != 'system' %}
    {{- '<|im_start|>system\\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\\n' }}
{%- endif %}
{%- for m in messages %}
    {%- if m.role == 'tool' %}
        {%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\\n<tool_response>\\n' + m.content + '\\n</tool_response>' }}
        {%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{- '<|im_end|>\\n' }}{%- endif %}
    {%- else %}
        {{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}""",
    "qwen3": """\
{%- set ns = namespace(query=messages|length - 1) %}
{%- for m in messages %}
    {%- if m.role == 'user' and not (m.content.startswith('<tool_response>')
                                     and m.content.endswith('</tool_response>')) %}
        {%- set ns.query = loop.index0 %}
    {%- endif %}
{%- endfor %}
{%- for m in messages %}
    {%- if m.role == 'tool' %}
        {%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\\n<tool_response>\\n' + m.content + '\\n</tool_response>' }}
        {%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{- '<|im_end|>\\n' }}{%- endif %}
    {%- elif m.role == 'assistant' %}
        {%- set said = m.content.split('</think>')[-1].lstrip('\\n') if '</think>' in m.content else m.content %}
        {%- set thought = m.content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n')
            if '</think>' in m.content else '' %}
        {{- '<|im_start|>assistant\\n' }}
        {%- if loop.index0 > ns.query and (loop.last or thought) %}
            {{- '<think>\\n' + thought.strip('\\n') + '\\n</think>\\n\\n' + said.lstrip('\\n') }}
        {%- else %}
            {{- said }}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- else %}
        {{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}""",
    "llama3": """\
{{- bos_token }}
{%- for m in messages %}
    {{- '<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' + m.content | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}""",
    "llama31": """\
{{- bos_token }}
{%- set has_system = messages[0].role == 'system' %}
{{- '<|start_header_id|>system<|end_header_id|>\\n\\nCutting Knowledge Date: December 2023\\n' }}
{{- 'Today Date: 26 Jul 2024\\n\\n' + (messages[0].content | trim if has_system else '') + '<|eot_id|>' }}
{%- set turns = messages[1:] if has_system else messages %}
{%- for m in turns %}
    {%- if m.role == 'tool' %}
        {{- '<|start_header_id|>ipython<|end_header_id|>\\n\\n' + m.content | tojson + '<|eot_id|>' }}
    {%- else %}
        {{- '<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' + m.content | trim + '<|eot_id|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}""",
}


def chat(*turns):
    return [{"role": role, "content": content} for role, content in turns]


CHATS = [
    chat(("user", "What is the capital of France?")),
    chat(("system", "You are terse."), ("user", "Hi")),
    chat(("system", ""), ("user", "")),
    chat(("user", "\n\nleading lines and trailing ones \n\n ")),
    chat(("user", "  two spaces"), ("assistant", "yes 42"), ("user", "and\tnow? 1234567")),
    chat(("user", "one"), ("user", "two"), ("system", "a late rule"), ("user", "three")),
    chat(("user", "weather?"), ("assistant", "looking"), ("tool", '{"t": "21 \u00b0C",\n"wind": 3}'),
         ("tool", "a \\ second \t result \u0001"), ("user", "thanks")),
    chat(("user", "\u00e9t\u00e9 e\u0301 \U0001f469\u200d\U0001f469\u200d\U0001f467 \u4f60\u597d \u05e9\u05dc\u05d5\u05dd")),
    chat(("user", "q"), ("assistant", "<think>\nlet me see\n\n</think>\n\nthe answer"), ("user", "more")),
    chat(("user", "q"), ("assistant", "<think>\n\nlet me see\n</think>\n\nthe answer")),
    chat(("user", "q"), ("assistant", "plain"), ("tool", "r"), ("assistant", "so\u3000")),
    chat(("assistant", "I begin"), ("user", "\u00a0trimmed\u2003")),
]
