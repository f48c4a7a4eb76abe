package scriptmodel

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

// kind is the type of a key.
type kind uint8

const (
	none kind = iota // there is no such key
	text
	hash
	zset
	list
)

// key is a key of the node, or the place of a former one: keys come and go often, and their memory
// is used again.
type key struct {
	kind    kind
	expires int64 // ms of the node's clock; 0 never
	text    string
	fields  []Field  // in the order of their arrival
	members []Member // by score, then by name
	items   []string // of a list
}

// Field is a field of a hash.
type Field struct{ Name, Value string }

// Member is a member of a sorted set.
type Member struct {
	Name  string
	Score float64
}

const (
	wrongType  failure = "WRONGTYPE Operation against a key holding the wrong kind of value"
	notInteger failure = "ERR value is not an integer or out of range"
	notFloat   failure = "ERR value is not a valid float"
	badExpiry  failure = "ERR invalid expire time in 'set' command"
)

// key returns the key of that name, or a place for it. A key that is over is removed first.
func (n *Node) key(name string) *key {
	k := n.keys[name]
	if k == nil {
		k = new(key)
		n.keys[name] = k
	}
	return n.fresh(k)
}

// fresh returns a key after removing it if it is over.
func (n *Node) fresh(k *key) *key {
	if k.expires != 0 && k.over(n.now.ms(), n.Eager) {
		k.del()
	}
	return k
}

func (k *key) over(ms int64, eager bool) bool { return ms > k.expires || eager && ms == k.expires }

func (k *key) del() {
	k.kind, k.expires, k.text, k.items = none, 0, "", nil
	clear(k.fields)
	clear(k.members)
	k.fields, k.members = k.fields[:0], k.members[:0]
}

func (k *key) exists() bool { return k.kind != none }

// must fails if the key has another type. It reports whether the key is there.
func (k *key) must(want kind) bool {
	if k.kind != want && k.kind != none {
		panic(wrongType)
	}
	return k.kind == want
}

// pttl returns how many ms are left, -1 without an expiry, -2 without a key.
func (n *Node) pttl(k *key) int64 {
	switch {
	case k.kind == none:
		return -2
	case k.expires == 0:
		return -1
	}
	return k.expires - n.now.ms()
}

func (n *Node) pexpire(k *key, ms int64) {
	if ms <= 0 {
		k.del()
	} else if k.kind != none {
		k.expires = n.now.ms() + ms
	}
}

// expire is expire.lua.
func (n *Node) expire(k *key, ms string) {
	defer func() {
		if n.pttl(k) == -1 {
			k.del()
		}
	}()
	n.pexpire(k, integer(ms))
}

// get returns the value; ok is false if there is none.
func (k *key) get() (value string, ok bool) { return k.text, k.must(text) }

func (k *key) set(value string) {
	k.del()
	k.kind, k.text = text, value
}

// setFor is SET with PX, with the time in the format %.0f.
func (n *Node) setFor(k *key, value string, ms float64) {
	if ms = math.RoundToEven(ms); ms > 1<<62 {
		panic(notInteger)
	}
	if ms <= 0 {
		panic(badExpiry)
	}
	k.set(value)
	k.expires = n.now.ms() + int64(ms)
}

// incrby is INCRBY. It reports whether that succeeds.
func (k *key) incrby(delta float64) bool {
	n, err := strconv.ParseInt(k.text, 10, 64)
	if k.kind != text || err != nil || strconv.FormatInt(n, 10) != k.text || delta != math.Trunc(delta) || math.Abs(delta) > 1<<53 {
		return false
	}
	k.text = strconv.FormatInt(n+int64(delta), 10)
	return true
}

func (k *key) find(field string) int {
	for i := range k.fields {
		if k.fields[i].Name == field {
			return i
		}
	}
	return -1
}

func (k *key) hexists(field string) bool { return k.must(hash) && k.find(field) >= 0 }

// hget returns the value of a field. Without the field it is "", which the scripts treat alike
// unless they ask for ok.
func (k *key) hget(field string) (value string, ok bool) {
	k.must(hash)
	if i := k.find(field); i >= 0 {
		return k.fields[i].Value, true
	}
	return "", false
}

// hgetall returns the fields, which are valid until the next write.
func (k *key) hgetall() []Field {
	k.must(hash)
	return k.fields
}

func (k *key) hset(field, value string) {
	k.must(hash)
	k.kind = hash
	if i := k.find(field); i >= 0 {
		k.fields[i].Value = value
	} else {
		k.fields = append(k.fields, Field{field, value})
	}
}

func (k *key) hdel(field string) bool {
	k.must(hash)
	i := k.find(field)
	if i >= 0 {
		k.fields = slices.Delete(k.fields, i, i+1)
		if len(k.fields) == 0 {
			k.del()
		}
	}
	return i >= 0
}

// ranked returns the members in order, which are valid until the next write.
func (k *key) ranked() []Member {
	k.must(zset)
	return k.members
}

// first returns the first member, "" if there is none.
func (k *key) first() string {
	if m := k.ranked(); len(m) > 0 {
		return m[0].Name
	}
	return ""
}

// zrank returns the place of a member from 0, -1 if it is none.
func (k *key) zrank(member string) int {
	for i := range k.ranked() {
		if k.members[i].Name == member {
			return i
		}
	}
	return -1
}

// zadd adds a member, or changes its score. It reports whether the member is new.
func (k *key) zadd(score, member string) bool {
	s, ok := float(score)
	if !ok {
		panic(notFloat)
	}
	was := k.zrank(member)
	if was >= 0 {
		if k.members[was].Score == s {
			return false
		}
		k.members = slices.Delete(k.members, was, was+1)
	}
	k.kind = zset
	m := Member{member, s}
	at, _ := slices.BinarySearchFunc(k.members, m, compareMembers)
	k.members = slices.Insert(k.members, at, m)
	return was < 0
}

func compareMembers(a, b Member) int {
	switch {
	case a.Score < b.Score:
		return -1
	case a.Score > b.Score:
		return 1
	}
	return strings.Compare(a.Name, b.Name)
}

// zrem reports whether the member was there.
func (k *key) zrem(member string) bool {
	i := k.zrank(member)
	if i < 0 {
		return false
	}
	k.zremFrom(i, i+1)
	return true
}

func (k *key) zremFrom(from, to int) {
	k.members = slices.Delete(k.members, from, to)
	if len(k.members) == 0 {
		k.del()
	}
}

// float reads a number as ZADD does. It knows the forms that a ticket can have.
func float(s string) (float64, bool) {
	if v, ok := digits(s); ok {
		return v, true
	}
	f, err := strconv.ParseFloat(s, 64)
	return f, err == nil && f == f
}

// integer reads a number as PEXPIRE does.
func integer(s string) int64 {
	v, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		panic(notInteger)
	}
	return v
}
