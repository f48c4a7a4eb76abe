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

	"github.com/quorumlock/quorumlock/internal/wire"
)

// fake is a server with the test's answers.
type fake struct {
	mode   string // that HELLO tells; an error if it is empty
	id     int    // that CLIENT ID tells; HELLO tells 7
	answer func(args []string) string

	withholds string // a command that has no reply; the script after it has

	mu    sync.Mutex
	asked [][]string // scripts
	dials int        // connections that scripts were sent on
}

func (f *fake) dial(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	replies := make(chan string, 100) // like the buffer of a socket
	go func() {
		for r := range replies {
			_, _ = io.WriteString(server, r)
		}
		_ = server.Close()
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
			if !used && strings.HasPrefix(args[0], "eval") {
				used = true
				f.mu.Lock()
				f.dials++
				f.mu.Unlock()
			}
			r := f.reply(args)
			if r == "" {
				return // and the connection ends
			}
			if f.withholds == args[0] {
				continue
			}
			replies <- r
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

func (f *fake) reply(args []string) string {
	switch args[0] {
	case "hello":
		if f.mode == "" {
			return "-ERR unknown command\r\n"
		}
		return fmt.Sprintf("*6\r\n$5\r\nproto\r\n:2\r\n$2\r\nid\r\n:7\r\n$4\r\nmode\r\n$%d\r\n%s\r\n", len(f.mode), f.mode)
	case "client":
		if args[1] == "id" {
			if f.id == 0 {
				return "-ERR unknown command\r\n"
			}
			return fmt.Sprintf(":%d\r\n", f.id)
		}
		return "+OK\r\n"
	case "info":
		return "-NOPERM x\r\n"
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, args)
	return f.answer(args)
}

func acquires(n int) (calls []wire.Call) {
	for i := range n {
		calls = append(calls, wire.Acquire(fmt.Sprint("key-", i), alice, ttl, 1, uint64(1000+i)))
	}
	return calls
}
