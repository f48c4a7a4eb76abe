package simulation

import (
	"bufio"
	"bytes"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/alicebob/miniredis/v2/server"
	lua "github.com/yuin/gopher-lua"
)

// interpreter runs the scripts of a node, with miniredis behind redis.call. miniredis would do it itself,
// with the same Lua, but makes a new state with all of its libraries for every run, which takes ten
// times as long as the script does. TestInterpreterAgreesWithMiniredis compares the two.
type interpreter struct {
	state     *lua.LState
	functions map[string]*lua.LFunction // by their source

	redis   *server.Server // of the run at hand
	publish func(channel, message string) int
	info    func(section string) string
	peer    *server.Peer
	sent    *bufio.Writer
	reply   bytes.Buffer
	parse   *bufio.Reader
}

func newInterpreter() *interpreter {
	in := &interpreter{
		state:     lua.NewState(lua.Options{SkipOpenLibs: true}),
		functions: make(map[string]*lua.LFunction),
	}
	in.sent = bufio.NewWriter(&in.reply)
	in.parse = bufio.NewReader(&in.reply)
	l := in.state
	for name, open := range map[string]lua.LGFunction{
		lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable, lua.StringLibName: lua.OpenString, lua.MathLibName: lua.OpenMath,
	} {
		l.Push(l.NewFunction(open))
		l.Push(lua.LString(name))
		l.Call(1, 0)
	}
	l.SetGlobal("redis", l.SetFuncs(l.NewTable(), map[string]lua.LGFunction{
		"call":  func(l *lua.LState) int { return in.call(l, true) },
		"pcall": func(l *lua.LState) int { return in.call(l, false) },
		"sha1hex": func(l *lua.LState) int {
			sum := sha1.Sum([]byte(l.CheckString(1)))
			l.Push(lua.LString(hex.EncodeToString(sum[:])))
			return 1
		},
		"error_reply": func(l *lua.LState) int { l.Push(failure(l, l.CheckString(1))); return 1 },
	}))
	l.SetGlobal("KEYS", lua.LNil)
	// As in Redis, a script that forgets a local is an error, and leaves nothing for the next.
	strict := l.NewTable()
	strict.RawSetString("__newindex", l.NewFunction(func(l *lua.LState) int {
		l.RaiseError("Script attempted to create global variable '%s'", l.CheckString(2))
		return 0
	}))
	l.SetMetatable(l.Get(lua.GlobalsIndex), strict)
	return in
}

var interpreters = sync.Pool{New: func() any { return newInterpreter() }}

// run runs a script and returns its reply as it goes over the wire.
func (in *interpreter) run(source string, keys, args []string) []byte {
	l := in.state
	f := in.functions[source]
	if f == nil {
		var err error
		if f, err = l.LoadString(source); err != nil {
			return fmt.Appendf(nil, "-ERR Error compiling script: %v\r\n", strings.ReplaceAll(err.Error(), "\n", " "))
		}
		f.Proto.IsVarArg &^= lua.VarArgNeedsArg // no script asks for the table arg, which would be made for each run
		in.functions[source] = f
	}
	globals := l.Get(lua.GlobalsIndex).(*lua.LTable)
	globals.RawSetString("KEYS", list(l, keys))
	globals.RawSetString("ARGV", list(l, args))
	l.Push(f)
	defer l.SetTop(0)
	if err := l.PCall(0, lua.MultRet, nil); err != nil {
		said := err.Error()
		if e, ok := errors.AsType[*lua.ApiError](err); ok {
			said = e.Object.String()
		}
		return fmt.Appendf(nil, "-ERR %s\r\n", strings.ReplaceAll(said, "\n", " "))
	}
	if l.GetTop() == 0 {
		return wire(nil, lua.LNil)
	}
	return wire(nil, l.Get(1))
}

func list(l *lua.LState, values []string) *lua.LTable {
	t := l.CreateTable(len(values), 0)
	for _, v := range values {
		t.Append(lua.LString(v))
	}
	return t
}

func failure(l *lua.LState, message string) *lua.LTable {
	t := l.NewTable()
	t.RawSetString("err", lua.LString(message))
	return t
}

// call is redis.call, or redis.pcall, which returns what failed instead of raising it.
func (in *interpreter) call(l *lua.LState, raise bool) int {
	args := make([]string, l.GetTop())
	for i := range args {
		args[i] = l.CheckString(i + 1)
	}
	if len(args) == 3 && strings.EqualFold(args[0], "publish") {
		l.Push(lua.LNumber(in.publish(args[1], args[2])))
		return 1
	}
	if len(args) == 2 && strings.EqualFold(args[0], "info") {
		l.Push(lua.LString(in.info(args[1])))
		return 1
	}
	in.reply.Reset()
	in.redis.Dispatch(in.peer, args)
	in.peer.Flush()
	in.parse.Reset(&in.reply)
	v, err := server.ParseReply(in.parse)
	switch {
	case err != nil && raise:
		l.RaiseError("%s", err.Error())
	case err != nil:
		l.Push(failure(l, err.Error()))
	default:
		l.Push(value(l, v))
	}
	return 1
}

// value is a reply as Lua sees it.
func value(l *lua.LState, v any) lua.LValue {
	switch v := v.(type) {
	case nil:
		return lua.LFalse
	case int:
		return lua.LNumber(v)
	case int64:
		return lua.LNumber(v)
	case string:
		return lua.LString(v)
	case []byte:
		return lua.LString(v)
	case server.Simple:
		t := l.NewTable()
		t.RawSetString("ok", lua.LString(v))
		return t
	case []any:
		t := l.CreateTable(len(v), 0)
		for _, e := range v {
			t.Append(value(l, e))
		}
		return t
	}
	panic(fmt.Sprintf("a reply of type %T", v))
}

// wire appends what a script returned, in the Redis serialization protocol.
func wire(b []byte, v lua.LValue) []byte {
	switch v := v.(type) {
	case lua.LBool:
		if v {
			return append(b, ":1\r\n"...)
		}
	case lua.LNumber:
		return append(strconv.AppendInt(append(b, ':'), int64(v), 10), "\r\n"...)
	case lua.LString:
		return fmt.Appendf(b, "$%d\r\n%s\r\n", len(v), string(v))
	case *lua.LTable:
		if e := v.RawGetString("err"); e != lua.LNil {
			return fmt.Appendf(b, "-%s\r\n", e)
		}
		n := v.Len()
		b = fmt.Appendf(b, "*%d\r\n", n)
		for i := range n {
			b = wire(b, v.RawGetInt(i+1))
		}
		return b
	}
	return append(b, "$-1\r\n"...)
}
