"""Agents of other frameworks as agents of agentrun, one module each: import the one you use.

    from agentrun.frameworks import langgraph

    async def answer(item, ctx):
        return await langgraph.run(graph, {"question": item.text}, ctx=ctx)

Only the module of a framework imports it.
"""
