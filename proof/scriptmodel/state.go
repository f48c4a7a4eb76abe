package scriptmodel

import (
	"slices"
	"strconv"
)

// Value is the value of a key: a text, the fields of a hash, the members of a sorted set, or the
// items of a list.
type Value struct {
	Text    string
	Fields  []Field
	Members []Member
	Items   []string
	Expires int64 // ms since 1970, by the clock of the node; 0 never
}

// Put replaces the value of a key. A value without fields, members and items is a text. A key that
// would expire now is not made.
func (n *Node) Put(now Time, name string, v Value) {
	n.now = now
	k := n.key(name)
	k.set(v.Text)
	if len(v.Fields) > 0 {
		k.kind, k.fields = hash, append(k.fields, v.Fields...)
	} else if len(v.Members) > 0 {
		k.kind, k.members = zset, append(k.members, v.Members...)
		slices.SortFunc(k.members, compareMembers)
	} else if len(v.Items) > 0 {
		k.kind, k.items = list, v.Items
	}
	if k.expires = v.Expires; k.expires != 0 && k.expires <= now.ms() {
		k.del()
	}
}

// Forget removes a key, as an eviction does. It reports whether there was one.
func (n *Node) Forget(now Time, name string) bool {
	n.now = now
	k := n.key(name)
	there := k.exists()
	k.del()
	return there
}

// Flush removes all keys.
func (n *Node) Flush() {
	for _, k := range n.keys {
		k.del()
	}
}

// Restart records that the server was started as another process, with a history of its own. Its
// keys stay: call Flush or Forget, too, if it has lost them.
func (n *Node) Restart(run, history string) {
	n.Info.Run, n.Info.History, n.Info.Former = run, history, NoHistory
}

// Promote records that the server was a replica until now, and continues its history under a new
// ID.
func (n *Node) Promote(history string) {
	n.Info.History, n.Info.Former = history, n.Info.History
}

// Keys returns the names of all keys, sorted.
func (n *Node) Keys(now Time) []string {
	n.now = now
	var names []string
	for name := range n.keys {
		if n.key(name).exists() {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Peek returns the value of a key, which is valid until the next change, and whether there is one.
func (n *Node) Peek(now Time, name string) (v Value, ok bool) {
	n.now = now
	k := n.key(name)
	return Value{k.text, k.fields, k.members, k.items, k.expires}, k.exists()
}

// Place is where a key is, or may be, at a node.
type Place struct{ *key }

// Place returns the place of a key, which never changes.
func (n *Node) Place(name string) Place { return Place{n.key(name)} }

// Look is Peek for a key with a known place at the node.
func (n *Node) Look(now Time, p Place) (v Value, ok bool) {
	n.now = now
	k := n.fresh(p.key)
	return Value{k.text, k.fields, k.members, k.items, k.expires}, k.exists()
}

// score returns a score as a sorted set shows it.
func score(v float64) string {
	if i := int64(v); float64(i) == v {
		return strconv.FormatInt(i, 10)
	}
	return strconv.FormatFloat(v, 'g', 17, 64)
}
