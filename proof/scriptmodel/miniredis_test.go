package scriptmodel_test

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/quorumlock/quorumlock/internal/testkit/embedded/redislua"
	"github.com/quorumlock/quorumlock/internal/wire"
	"github.com/quorumlock/quorumlock/proof/scriptmodel"
)

// lua is the real scripts on miniredis, as a side.
type lua struct {
	redis   *miniredis.Miniredis
	in      *redislua.Interpreter
	now     scriptmodel.Time
	set     setting
	told    []scriptmodel.Message
	turn    int
	instead map[*wire.Script]string // broken scripts, by the original
}

func newLua(t *testing.T) *lua {
	s := &lua{redis: miniredis.NewMiniRedis(), in: redislua.New()}
	c, err := s.redis.Dial() // starts it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(); s.redis.Close() })
	s.in.Attach(redislua.Node{Redis: s.redis.Server(), Publish: s.publish, Info: s.info})
	return s
}

func (s *lua) publish(channel, text string) (int, error) {
	if s.set.mute {
		return 0, errors.New("NOPERM this user has no permissions to access one of the channels used as arguments")
	}
	s.told = append(s.told, scriptmodel.Message{Channel: channel, Text: text})
	n := 0
	for _, ch := range s.set.listening {
		if ch == channel {
			n++
		}
	}
	return n, nil
}

func (s *lua) info(section string) (string, error) {
	i := s.set.info
	if i.Denied {
		return "", errors.New("NOPERM this user has no permissions to run the 'info' command")
	}
	role := "master"
	if i.Replica {
		role = "slave"
	}
	fields := map[string]string{
		"server":      fmt.Sprintf("# Server\r\nredis_version:7.0.15\r\nrun_id:%s\r\nuptime_in_days:0\r\n", i.Run),
		"replication": fmt.Sprintf("# Replication\r\nrole:%s\r\nmaster_replid:%s\r\nmaster_replid2:%s\r\nmaster_repl_offset:0\r\n", role, i.History, i.Former),
	}[section]
	if s.set.missing != "" {
		fields = strings.Replace(fields, s.set.missing+":", s.set.missing+":?", 1)
	}
	return fields, nil
}

func (s *lua) reset(at scriptmodel.Time) {
	s.turn = 0
	s.redis.FlushAll()
	s.now = at
	s.redis.SetTime(time.UnixMicro(int64(at)))
}

// setTime expires by whole milliseconds of the clock, as Redis does.
func (s *lua) setTime(to scriptmodel.Time) {
	passed := time.Duration(to/1000-s.now/1000) * time.Millisecond
	s.now = to
	s.redis.SetTime(time.UnixMicro(int64(to)))
	if passed > 0 {
		s.redis.FastForward(passed)
	} else if passed < 0 {
		for _, k := range s.redis.Keys() {
			if ttl := s.redis.TTL(k); ttl > 0 {
				s.redis.SetTTL(k, ttl-passed)
			}
		}
	}
}

func (s *lua) run(c wire.Call) ([]byte, []scriptmodel.Message) {
	s.told = s.told[:0]
	if broken, ok := s.instead[c.Script]; ok {
		return normal(s.in.Run(broken, c.Keys(), c.Args())), s.told
	}
	script, args := request(c, &s.turn)
	reply := s.in.Run(script.Source, c.Keys(), args)
	if script == wire.Bundle {
		reply = bytes.TrimPrefix(reply, []byte("*1\r\n"))
	}
	return normal(reply), s.told
}

func (s *lua) put(name string, v scriptmodel.Value) {
	s.redis.Del(name)
	switch {
	case len(v.Fields) > 0:
		for _, f := range v.Fields {
			s.redis.HSet(name, f.Name, f.Value)
		}
	case len(v.Members) > 0:
		for _, m := range v.Members {
			if _, err := s.redis.ZAdd(name, m.Score, m.Name); err != nil {
				panic(err)
			}
		}
	case len(v.Items) > 0:
		if _, err := s.redis.Push(name, v.Items...); err != nil {
			panic(err)
		}
	default:
		if err := s.redis.Set(name, v.Text); err != nil {
			panic(err)
		}
	}
	if v.Expires != 0 && v.Expires <= int64(s.now/1000) {
		s.redis.Del(name)
	} else if v.Expires != 0 {
		s.redis.SetTTL(name, time.Duration(v.Expires-int64(s.now/1000))*time.Millisecond)
	}
}

func (s *lua) forget(name string)      { s.redis.Del(name) }
func (s *lua) flush()                  { s.redis.FlushAll() }
func (s *lua) configure(which setting) { s.set = which }

func (s *lua) dump(b []byte) []byte {
	db := s.redis.DB(0)
	for _, name := range db.Keys() {
		var text string
		var fields []scriptmodel.Field
		var members []scriptmodel.Member
		var items []string
		switch db.Type(name) {
		case "string":
			text, _ = db.Get(name)
		case "hash":
			names, _ := db.HKeys(name)
			for _, f := range names {
				fields = append(fields, scriptmodel.Field{Name: f, Value: db.HGet(name, f)})
			}
		case "zset":
			all, _ := db.SortedSet(name)
			for m, score := range all {
				members = append(members, scriptmodel.Member{Name: m, Score: score})
			}
			slices.SortFunc(members, byScore)
		case "list":
			items, _ = db.List(name)
		}
		b = dumped(b, name, db.TTL(name).Milliseconds(), text, fields, members, items)
	}
	return b
}

func byScore(a, b scriptmodel.Member) int {
	return cmp.Or(cmp.Compare(a.Score, b.Score), strings.Compare(a.Name, b.Name))
}

func byName(a, b scriptmodel.Field) int { return strings.Compare(a.Name, b.Name) }
