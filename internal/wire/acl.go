package wire

import "strings"

// aclCommands are the commands of the scripts and of the client.
const aclCommands = "+evalsha +eval +time +exists +pexpire +pttl +del +get +set +hget +hmget +hset +hdel +hexists +hgetall +hkeys +hlen " +
	"+hscan +incrby +lrange +zadd +zcard +zcount +zrange +zrangebyscore +zrank +zrem +zscore " +
	"+publish +subscribe +unsubscribe +client|setname +client|id +client|setinfo +info +ping"

// literal makes a text a pattern that matches the text alone.
var literal = strings.NewReplacer("*", "[*]", "?", "[?]", "[", "[[]", `\`, `[\\]`)

// ACL returns the least ACL rules, for Redis 7.2 and Valkey, of a client whose names begin with
// prefix and whose label begins with label. Without a prefix, they allow every name.
func ACL(prefix, label string) []string {
	rules := []string{"resetchannels"}
	wake := "&" + WakeChannel(label) + "*"
	if prefix == "" {
		rules = append(rules, "~*", "&"+channelPrefix+":*", wake, "&"+latchPrefix+"*", "&"+leaderPrefix+"*")
		return append(rules, strings.Fields(aclCommands)...)
	}
	names := literal.Replace(prefix) + "*"
	// The first form is that of names without braces.
	add := func(sign, kind, mark string) {
		if !strings.Contains(prefix, "{") {
			rules = append(rules, sign+kind+":{"+names)
		}
		rules = append(rules, sign+kind+mark+":"+names)
	}
	rules = append(rules, "~"+names)
	add("~", tokenPrefix, "")
	add("~", fairPrefix, "")
	for _, kind := range []string{queuePrefix, entriesPrefix, slotsPrefix, latchPrefix, leaderPrefix} {
		add("~", kind, "[*]")
	}
	add("&", channelPrefix, "")
	add("&", latchPrefix, "[*]")
	add("&", leaderPrefix, "[*]")
	return append(append(rules, wake), strings.Fields(aclCommands)...)
}
