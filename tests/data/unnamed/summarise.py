def summarise(item):
    with open("ran.log", "a") as log:
        log.write(item.key + "\n")
    return item.text.strip().upper()
