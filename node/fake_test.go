package node_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"
)

// fake is a server with the test's replies.
type fake struct {
	answer func(args []string) string // args[0] is in lower case; no reply if it is empty
	unsaid string                     // comes a second after INFO

	mu      sync.Mutex
	conns   []net.Conn
	scripts int
	used    int // connections that scripts were sent on
}

// hangUp is the end of a reply that is the last one of its connection.
const hangUp = "\x00hang up"

const unknown = "-ERR unknown command\r\n"

// scripted answers scripts, and knows no other command.
func scripted(reply string) *fake {
	return &fake{answer: func(args []string) string {
		if strings.HasPrefix(args[0], "eval") {
			return reply
		}
		return unknown
	}}
}

// standalone answers HELLO and CLIENT, and the rest as the test wants. Without id, there is no
// CLIENT ID.
func standalone(id int, rest func(args []string) string) *fake {
	return &fake{answer: func(args []string) string {
		switch {
		case args[0] == "hello":
			return "*6\r\n$5\r\nproto\r\n:2\r\n$2\r\nid\r\n:7\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n"
		case args[0] != "client":
			return rest(args)
		case args[1] != "id":
			return "+OK\r\n"
		case id == 0:
			return unknown
		}
		return fmt.Sprintf(":%d\r\n", id)
	}}
}

// subscriber answers each SUBSCRIBE for a channel as the test wants, and knows no HELLO.
func subscriber(answer func(channel string) string) *fake {
	return &fake{answer: func(args []string) string {
		switch args[0] {
		case "subscribe":
			return answer(args[1])
		case "hello":
			return unknown
		}
		return "+OK\r\n"
	}}
}

// subscribed is the reply to SUBSCRIBE.
func subscribed(channel string) string {
	return fmt.Sprintf("*3\r\n$9\r\nsubscribe\r\n$%d\r\n%s\r\n:1\r\n", len(channel), channel)
}

func (f *fake) usedConns() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.used
}

// say sends text on the newest connection, and returns after the client has read it.
func (f *fake) say(text string) {
	f.mu.Lock()
	c := f.conns[len(f.conns)-1]
	f.mu.Unlock()
	_, _ = io.WriteString(c, text)
	time.Sleep(time.Millisecond)
}

// cut ends all connections.
func (f *fake) cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.conns {
		_ = c.Close()
	}
}

func (f *fake) dial(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	f.mu.Lock()
	f.conns = append(f.conns, server)
	f.mu.Unlock()
	replies := make(chan string, 100) // like the buffer of a socket
	go func() {
		defer server.Close() //nolint:errcheck // it is a pipe
		for r := range replies {
			text, ends := strings.CutSuffix(r, hangUp)
			_, _ = io.WriteString(server, text) // the client may have gone
			if ends {
				return
			}
		}
	}()
	go func() {
		defer close(replies)
		in := bufio.NewReader(server)
		used := false
		for {
			args := make([]string, header(in))
			for i := range args {
				b := make([]byte, header(in)+2)
				_, _ = io.ReadFull(in, b)
				args[i] = string(b[:len(b)-2])
			}
			if len(args) == 0 {
				return
			}
			args[0] = strings.ToLower(args[0])
			f.mu.Lock()
			if strings.HasPrefix(args[0], "eval") {
				f.scripts++
				if !used {
					f.used++
				}
				used = true
			}
			r := f.answer(args)
			f.mu.Unlock()
			if args[0] == "info" && f.unsaid != "" {
				time.AfterFunc(time.Second, func() { _, _ = io.WriteString(server, f.unsaid) })
			}
			if r != "" {
				replies <- r
			}
		}
	}()
	return client, nil
}

// header reads the number of a line such as *3.
func header(in *bufio.Reader) int {
	line, _ := in.ReadString('\n')
	n, _ := strconv.Atoi(strings.Trim(line, "*$\r\n"))
	return n
}
