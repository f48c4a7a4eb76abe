package scriptmodel_test

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/quorumlock/quorumlock/internal/wire"
	"github.com/quorumlock/quorumlock/proof/scriptmodel"
)

// side is the model, or a server with the real scripts. Sequences of commands are played to it.
type side interface {
	reset(at scriptmodel.Time) // to a server without keys, which has just been started
	setTime(scriptmodel.Time)  // which may be before the last one
	run(wire.Call) (reply []byte, told []scriptmodel.Message)
	put(name string, v scriptmodel.Value)
	forget(name string)
	flush()
	configure(setting) // the state outside its keys
	dump(b []byte) []byte
}

// request returns the script and arguments to send for a call. Every second call goes as a bundle
// of one if its script has a letter. The effect and the reply are the same.
func request(c wire.Call, turn *int) (script *wire.Script, args []string) {
	script, args = c.Script, c.Args()
	if *turn++; script.Letter != 0 && *turn%2 == 0 {
		about := fmt.Sprintf("%c%d%d", script.Letter, len(c.Keys()), len(args))
		script, args = wire.Bundle, append([]string{about}, args...)
	}
	return script, args
}

// setting is the state of a server outside its keys.
type setting struct {
	info      scriptmodel.Info
	mute      bool
	listening []string // channels, each with one subscriber
	// The field for the guard that INFO does not have, or not as an ID.
	missing string
}

// model is the model as a side.
type model struct {
	node  *scriptmodel.Node
	now   scriptmodel.Time
	eager bool
	// If not nil, the INFO of the other side: a server with a fixed INFO, and messages for real
	// subscribers only.
	fixed *scriptmodel.Info
}

func (m *model) reset(at scriptmodel.Time) {
	m.node, m.now = scriptmodel.New(firstRun), at
	m.node.Eager = m.eager
	if m.fixed != nil {
		m.node.Info = *m.fixed
	}
}

func (m *model) setTime(to scriptmodel.Time)          { m.now = to }
func (m *model) put(name string, v scriptmodel.Value) { m.node.Put(m.now, name, v) }
func (m *model) forget(name string)                   { m.node.Forget(m.now, name) }
func (m *model) flush()                               { m.node.Flush() }

func (m *model) configure(s setting) {
	m.node.Info, m.node.Mute, m.node.Receivers = s.info, s.mute, make(map[string]int)
	m.node.Info.Foreign = s.missing != ""
	for _, ch := range s.listening {
		m.node.Receivers[ch]++
	}
}

func (m *model) run(c wire.Call) ([]byte, []scriptmodel.Message) {
	reply, told := m.node.Run(m.now, c)
	if m.fixed != nil {
		told = slices.DeleteFunc(told, func(msg scriptmodel.Message) bool {
			return !strings.HasPrefix(msg.Channel, "quorumlock_wake:") && m.node.Receivers[msg.Channel] == 0
		})
	}
	if reply.Err != nil {
		return normal([]byte("-" + reply.Err.Error() + "\r\n")), told
	}
	return resp(nil, reply.Boxed().Value), told
}

func (m *model) dump(b []byte) []byte {
	for _, name := range m.node.Keys(m.now) {
		v, _ := m.node.Peek(m.now, name)
		ttl := int64(0)
		if v.Expires != 0 {
			ttl = v.Expires - int64(m.now/1000)
		}
		fields := slices.Clone(v.Fields)
		b = dumped(b, name, ttl, v.Text, fields, v.Members, v.Items)
	}
	return b
}

// resp writes a reply as Redis does.
func resp(b []byte, v any) []byte {
	switch v := v.(type) {
	case int64:
		b = strconv.AppendInt(append(b, ':'), v, 10)
	case string:
		b = strconv.AppendInt(append(b, '$'), int64(len(v)), 10)
		b = append(append(b, "\r\n"...), v...)
	case []any:
		b = append(strconv.AppendInt(append(b, '*'), int64(len(v)), 10), "\r\n"...)
		for _, e := range v {
			b = resp(b, e)
		}
		return b
	}
	return append(b, "\r\n"...)
}

// own matches the scripts' own errors.
var own = regexp.MustCompile(`^-(NOTALOCK|NOSEMAPHORE|WRONGKIND|LATCH) `)

// normal reduces an error to the part that the model promises: the whole text if it is the script's
// own, and the kind if Redis or Lua has raised it.
func normal(reply []byte) []byte {
	switch {
	case reply[0] != '-' || own.Match(reply):
		return reply
	case bytes.Contains(reply, []byte("WRONGTYPE")):
		return []byte("-WRONGTYPE")
	case bytes.HasPrefix(reply, []byte("-ERR the ")):
		return reply
	}
	return []byte("-ERR")
}

// dumped appends the state of a key, in one form for all sides. The ttl is 0 without an expiry.
func dumped(b []byte, name string, ttl int64, text string, fields []scriptmodel.Field, members []scriptmodel.Member, items []string) []byte {
	b = strconv.AppendQuote(b, name)
	b = append(b, " ttl "...)
	b = strconv.AppendInt(b, ttl, 10)
	switch {
	case len(fields) > 0:
		slices.SortFunc(fields, byName)
		b = append(b, " hash"...)
		for _, f := range fields {
			b = strconv.AppendQuote(append(b, ' '), f.Name)
			b = strconv.AppendQuote(append(b, '='), f.Value)
		}
	case len(members) > 0:
		b = append(b, " zset"...)
		for _, m := range members {
			b = strconv.AppendQuote(append(b, ' '), m.Name)
			b = strconv.AppendFloat(append(b, '@'), m.Score, 'g', -1, 64)
		}
	case len(items) > 0:
		b = append(b, " list"...)
		for _, i := range items {
			b = strconv.AppendQuote(append(b, ' '), i)
		}
	default:
		b = strconv.AppendQuote(append(b, ' '), text)
	}
	return append(b, '\n')
}
