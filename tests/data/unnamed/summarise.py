import agentrun


def summarise(item: agentrun.Item) -> str:
    with open("ran.log", "a") as log:
        log.write(item.key + "\n")
    return item.text.strip().upper()
