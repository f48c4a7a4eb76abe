package scriptmodel_test

import (
	"context"
	"encoding/binary"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock/internal/wire"
	"github.com/quorumlock/quorumlock/proof/scriptmodel"
)

var redisServer = flag.String("redis", "", "compare the model with this redis-server, too; it needs Linux and a C compiler (cc)")

// Without -redis, only miniredis is compared. Its differences from Redis are left out there: the
// end of a key, and the strings that Lua reads as numbers.
func TestModelAgreesWithRedis(t *testing.T) {
	if *redisServer == "" {
		t.Log("give -redis redis-server, to compare with a real one")
		return
	}
	real := startRedis(t)
	m := &model{fixed: &real.info}
	compare(t, real, m, *commands)
}

// process is a redis-server with a clock that stands still, as a side. Its INFO is real, and cannot
// be set.
type process struct {
	*testing.T
	clock *os.File
	redis *redis.Client
	heard *redis.PubSub
	now   scriptmodel.Time
	info  scriptmodel.Info
	seen  []any // the keys of this sequence
	set   setting
	turn  int
}

// removesEarly matches Redis 8. Its periodic removal may delete a key in the last millisecond of
// the key, in which commands would still find the key.
var removesEarly = regexp.MustCompile(`^Redis server v=([89]|[1-9][0-9])\.`)

func startRedis(t *testing.T) *process {
	dir := t.TempDir()
	p := &process{T: t}
	var err error
	p.clock, err = os.Create(filepath.Join(dir, "clock"))
	p.must(err)
	t.Cleanup(func() { _ = p.clock.Close() })
	p.setTime(epoch)
	library := filepath.Join(dir, "clock.so")
	if out, err := exec.CommandContext(t.Context(), "cc", "-shared", "-fPIC", "-O1", "-o", library, "testdata/clock.c").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	socket := filepath.Join(dir, "redis.sock")
	args := []string{"--port", "0", "--unixsocket", socket, "--dir", dir, "--save", "", "--appendonly", "no", "--loglevel", "warning"}
	version, err := exec.CommandContext(t.Context(), *redisServer, "--version").Output()
	p.must(err)
	early := removesEarly.Match(version)
	if early {
		args = append(args, "--enable-debug-command", "local")
	}
	server := exec.Command(*redisServer, args...)
	server.Env = append(os.Environ(), "LD_PRELOAD="+library, "CLOCK="+p.clock.Name())
	server.Stdout, server.Stderr = os.Stderr, os.Stderr
	p.must(server.Start())
	t.Cleanup(func() { _ = server.Process.Kill(); _ = server.Wait() })
	p.redis = redis.NewClient(&redis.Options{Network: "unix", Addr: socket, Protocol: 2, PoolSize: 1, MaxRetries: -1, DisableIdentity: true,
		DialerRetries: 50, DialerRetryTimeout: 100 * time.Millisecond, ReadTimeout: 10 * time.Second})
	t.Cleanup(func() { _ = p.redis.Close() })
	if now := p.redis.Time(p.ctx()).Val(); now.UnixMicro() != int64(epoch) {
		t.Fatalf("the server's clock shows %v: does LD_PRELOAD work here?", now)
	}
	if early {
		p.must(p.redis.Do(p.ctx(), "debug", "set-active-expire", "0").Err())
	}
	p.heard = p.redis.PSubscribe(p.ctx(), "quorumlock_wake:*")
	t.Cleanup(func() { _ = p.heard.Close() })
	p.told()
	info := p.redis.InfoMap(p.ctx()).Val()
	p.info = scriptmodel.Info{Run: info["Server"]["run_id"], History: info["Replication"]["master_replid"], Former: info["Replication"]["master_replid2"]}
	return p
}

func (p *process) ctx() context.Context { return context.Background() }

func (p *process) must(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

// told returns the messages since the last call.
func (p *process) told() (all []scriptmodel.Message) {
	p.must(p.heard.Ping(p.ctx(), "end"))
	for {
		m, err := p.heard.Receive(p.ctx())
		p.must(err)
		switch m := m.(type) {
		case *redis.Pong:
			return all
		case *redis.Message:
			all = append(all, scriptmodel.Message{Channel: m.Channel, Text: m.Payload})
		}
	}
}

func (p *process) reset(at scriptmodel.Time) {
	p.turn = 0
	p.setTime(at)
	p.flush()
	p.seen = p.seen[:0]
	p.configure(setting{info: p.info})
}

// setTime first removes the expired keys. Redis removes such a key at the next access, or soon: if
// the clock was stepped back before that, the key would be there again.
func (p *process) setTime(to scriptmodel.Time) {
	if to < p.now && len(p.seen) > 0 {
		p.must(p.redis.Do(p.ctx(), append([]any{"exists"}, p.seen...)...).Err())
	}
	p.now = to
	_, err := p.clock.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(to)), 0)
	p.must(err)
}

func (p *process) run(c wire.Call) ([]byte, []scriptmodel.Message) {
	keys := c.Keys()
	script, own := request(c, &p.turn)
	args := []any{"evalsha", script.SHA(), len(keys)}
	for _, k := range keys {
		args = append(args, k)
		p.see(k)
	}
	for _, a := range own {
		args = append(args, a)
	}
	v, err := p.redis.Do(p.ctx(), args...).Result()
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		p.must(p.redis.ScriptLoad(p.ctx(), script.Source).Err())
		v, err = p.redis.Do(p.ctx(), args...).Result()
	}
	if script == wire.Bundle && err == nil {
		v = v.([]any)[0]
		err, _ = v.(error)
	}
	if err != nil {
		return normal([]byte("-" + err.Error() + "\r\n")), p.told()
	}
	return resp(nil, v), p.told()
}

func (p *process) see(key string) {
	if !slices.Contains(p.seen, any(key)) {
		p.seen = append(p.seen, key)
	}
}

func (p *process) put(name string, v scriptmodel.Value) {
	p.see(name)
	_, err := p.redis.Pipelined(p.ctx(), func(to redis.Pipeliner) error {
		to.Del(p.ctx(), name)
		switch {
		case len(v.Fields) > 0:
			for _, f := range v.Fields {
				to.HSet(p.ctx(), name, f.Name, f.Value)
			}
		case len(v.Members) > 0:
			for _, m := range v.Members {
				to.ZAdd(p.ctx(), name, redis.Z{Score: m.Score, Member: m.Name})
			}
		case len(v.Items) > 0:
			to.RPush(p.ctx(), name, v.Items)
		default:
			to.Set(p.ctx(), name, v.Text, 0)
		}
		if v.Expires != 0 {
			to.Do(p.ctx(), "pexpireat", name, v.Expires)
		}
		return nil
	})
	p.must(err)
}

func (p *process) forget(name string) { p.must(p.redis.Del(p.ctx(), name).Err()) }
func (p *process) flush()             { p.must(p.redis.FlushAll(p.ctx()).Err()) }

func (p *process) configure(s setting) {
	rules := []any{"acl", "setuser", "default", "+publish", "+info"}
	if s.mute {
		rules[3] = "-publish"
	}
	if s.info.Denied {
		rules[4] = "-info"
	}
	p.must(p.redis.Do(p.ctx(), rules...).Err())
	if len(p.set.listening) > 0 {
		p.must(p.heard.Unsubscribe(p.ctx(), p.set.listening...))
	}
	if len(s.listening) > 0 {
		p.must(p.heard.Subscribe(p.ctx(), s.listening...))
	}
	p.told()
	p.set = s
}

const dumpScript = `
local all = {}
for _, k in ipairs(redis.call('keys', '*')) do
  local kind, v = redis.call('type', k).ok
  if kind == 'hash' then
    v = redis.call('hgetall', k)
  elseif kind == 'zset' then
    v = redis.call('zrange', k, 0, -1, 'withscores')
  elseif kind == 'list' then
    v = redis.call('lrange', k, 0, -1)
  else
    v = {redis.call('get', k)}
  end
  all[#all + 1] = {k, kind, redis.call('pttl', k), v}
end
return all`

func (p *process) dump(b []byte) []byte {
	reply, err := p.redis.Eval(p.ctx(), dumpScript, nil).Slice()
	p.must(err)
	all := make(map[string][]any)
	var names []string
	for _, r := range reply {
		k := r.([]any)
		names = append(names, k[0].(string))
		all[k[0].(string)] = k
	}
	slices.Sort(names)
	for _, name := range names {
		k := all[name]
		var fields []scriptmodel.Field
		var members []scriptmodel.Member
		var items []string
		values := k[3].([]any)
		for i := 0; k[1] == "list" && i < len(values); i++ {
			items = append(items, values[i].(string))
		}
		for i := 0; k[1] != "list" && i+1 < len(values); i += 2 {
			first, second := values[i].(string), values[i+1].(string)
			if k[1] == "hash" {
				fields = append(fields, scriptmodel.Field{Name: first, Value: second})
			} else {
				score, err := strconv.ParseFloat(second, 64)
				p.must(err)
				members = append(members, scriptmodel.Member{Name: first, Score: score})
			}
		}
		text := ""
		if k[1] == "string" {
			text = values[0].(string)
		}
		b = dumped(b, name, max(0, k[2].(int64)), text, fields, members, items)
	}
	return b
}
