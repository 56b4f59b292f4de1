import agentrun


async def work(item, ctx):
    ctx.usage(cost=0.01, input_tokens=10, output_tokens=2)
    outline = await ctx.step("outline", lambda: item.text.upper())
    if item.text.startswith("ask"):
        answer = await ctx.ask("Send it?", draft=outline)
        return {"sent": bool(answer), "draft": answer["draft"]}
    if item.text.startswith("fail"):
        raise agentrun.Fail("no good")
    if item.text.startswith("skip"):
        raise agentrun.Skip("not this one")
    return {"outline": outline}
