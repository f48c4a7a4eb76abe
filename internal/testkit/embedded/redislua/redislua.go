// Package redislua runs Lua scripts as Redis does, in the process, with miniredis behind
// redis.call. miniredis has the same Lua, but makes a new state with all libraries for every run,
// which takes ten times as long as the script.
//
// It is for tests and the simulation. proof/scriptmodel and real servers agree with it.
package redislua

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/alicebob/miniredis/v2/server"
	lua "github.com/yuin/gopher-lua"

	scripts "github.com/quorumlock/quorumlock/internal/wire"
	"github.com/yuin/gopher-lua/parse"
)

// Interpreter runs the scripts of one node, and those of another node after the next Attach. It is
// not safe for concurrent use.
type Interpreter struct {
	state     *lua.LState
	functions map[string]*lua.LFunction // by source

	node  Node
	peer  *server.Peer
	sent  *bufio.Writer
	reply bytes.Buffer
	parse *bufio.Reader
}

// Node is the node that redis.call reaches.
type Node struct {
	Redis   *server.Server
	Peer    *server.Peer // database and permissions of the scripts; nil for database 0
	Publish func(channel, message string) (receivers int, err error)
	Info    func(section string) (string, error)
}

// New returns an interpreter. Its Lua has the libraries of Redis, as far as the scripts of this
// library use them.
func New() *Interpreter {
	in := &Interpreter{
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
	mendMatch(l)
	l.SetGlobal("redis", l.SetFuncs(l.NewTable(), map[string]lua.LGFunction{
		"call":  func(l *lua.LState) int { return in.call(l, true) },
		"pcall": func(l *lua.LState) int { return in.call(l, false) },
		"sha1hex": func(l *lua.LState) int {
			l.Push(lua.LString(scripts.SHA1(l.CheckString(1))))
			return 1
		},
		"error_reply": func(l *lua.LState) int { l.Push(failure(l, l.CheckString(1))); return 1 },
	}))
	l.SetGlobal("KEYS", lua.LNil)
	// As in Redis, a script that forgets a local fails, and leaves nothing for the next.
	strict := l.NewTable()
	strict.RawSetString("__newindex", l.NewFunction(func(l *lua.LState) int {
		l.RaiseError("Script attempted to create global variable '%s'", l.CheckString(2))
		return 0
	}))
	l.SetMetatable(l.Get(lua.GlobalsIndex), strict)
	return in
}

// mendMatch makes string.match return nil if nothing matches, as in Redis. gopher-lua then returns
// no value at all, which tonumber rejects.
func mendMatch(l *lua.LState) {
	library := l.GetGlobal(lua.StringLibName).(*lua.LTable)
	match := library.RawGetString("match").(*lua.LFunction).GFunction
	library.RawSetString("match", l.NewFunction(func(l *lua.LState) int {
		if n := match(l); n > 0 {
			return n
		}
		l.Push(lua.LNil)
		return 1
	}))
}

// Attach sets the node of the next scripts. The zero Node detaches the interpreter.
func (in *Interpreter) Attach(n Node) {
	in.node, in.peer = n, server.NewPeer(in.sent)
	if n.Peer != nil {
		in.peer.Ctx = n.Peer.Ctx
	}
}

// SetContext makes scripts fail once ctx is done. It makes them slower.
func (in *Interpreter) SetContext(ctx context.Context) { in.state.SetContext(ctx) }

// Run runs a script and returns its reply in the form of the wire.
func (in *Interpreter) Run(source string, keys, args []string) []byte {
	l := in.state
	f := in.functions[source]
	if f == nil {
		proto, err := compile(source)
		if err != nil {
			return fmt.Appendf(nil, "-ERR Error compiling script: %v\r\n", strings.ReplaceAll(err.Error(), "\n", " "))
		}
		f = l.NewFunctionFromProto(proto)
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
			if _, ok := e.Object.(*lua.LTable); ok { // raised by call
				return wire(nil, e.Object)
			}
			said = e.Object.String()
		}
		return fmt.Appendf(nil, "-ERR %s\r\n", strings.ReplaceAll(said, "\n", " "))
	}
	if l.GetTop() == 0 {
		return wire(nil, lua.LNil)
	}
	return wire(nil, l.Get(1))
}

// compiled has the *lua.FunctionProto of each source, which interpreters share: it takes longer to
// compile a script than to run it.
var compiled sync.Map

func compile(source string) (*lua.FunctionProto, error) {
	if p, ok := compiled.Load(source); ok {
		return p.(*lua.FunctionProto), nil
	}
	chunk, err := parse.Parse(strings.NewReader(source), "<script>")
	if err != nil {
		return nil, err
	}
	proto, err := lua.Compile(chunk, "<script>")
	if err != nil {
		return nil, err
	}
	proto.IsVarArg &^= lua.VarArgNeedsArg // no script uses arg, a table for each run
	compiled.Store(source, proto)
	return proto, nil
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

// call is redis.call, or redis.pcall, which returns an error instead of raising it.
func (in *Interpreter) call(l *lua.LState, raise bool) int {
	args := make([]string, l.GetTop())
	for i := range args {
		args[i] = l.CheckString(i + 1)
	}
	v, err := in.answer(args)
	switch {
	case err != nil && raise:
		l.Error(failure(l, err.Error()), 1)
	case err != nil:
		l.Push(failure(l, err.Error()))
	default:
		l.Push(value(l, v))
	}
	return 1
}

// answer returns the node's answer to a command.
func (in *Interpreter) answer(args []string) (any, error) {
	if len(args) == 3 && strings.EqualFold(args[0], "publish") {
		return in.node.Publish(args[1], args[2])
	}
	if len(args) == 2 && strings.EqualFold(args[0], "info") {
		return in.node.Info(args[1])
	}
	in.reply.Reset()
	in.node.Redis.Dispatch(in.peer, args)
	in.peer.Flush()
	in.parse.Reset(&in.reply)
	return server.ParseReply(in.parse)
}

// value returns a reply as Lua sees it.
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

// wire appends the result of a script, in the Redis serialization protocol.
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
