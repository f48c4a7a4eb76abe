package transport

import (
	"strings"
	"testing"
)

// Servers before Redis 7 wrap the error of a command in a script. A wrapped error without a code
// stays unchanged.
func TestTheCodeOfAServersErrorComesFirst(t *testing.T) {
	const script, raised = "ERR Error running script (call to f_5b3f): @user_script:20: ", "@user_script: 20: -"
	for said, want := range map[string]string{
		"READONLY You can't write":                                                         "READONLY You can't write",
		"READONLY You can't write script: 5b3f, on @user_script":                           "READONLY You can't write script: 5b3f, on @user_script",
		"ERR max number of clients reached":                                                "ERR max number of clients reached",
		"ERR ACL failure in script: no permission":                                         "ERR ACL failure in script: no permission",
		script + raised + "READONLY You can't write":                                       "READONLY You can't write",
		script + raised + "OOM command not allowed":                                        "OOM command not allowed",
		script + "WRONGTYPE Operation against a key":                                       "WRONGTYPE Operation against a key",
		raised + "MASTERDOWN Link with MASTER is down":                                     "MASTERDOWN Link with MASTER is down",
		raised + "ERR unknown command":                                                     "ERR unknown command",
		"ERR Error running script (in a bundle): " + raised + "READONLY You can't write":   "READONLY You can't write",
		"ERR Error running script (in a bundle): WRONGTYPE Operation against a key":        "WRONGTYPE Operation against a key",
		script + "The user executing the script can't run this command or subcommand":      script + "The user executing the script can't run this command or subcommand",
		script + "user_script:20: attempt to perform arithmetic on a nil value":            script + "user_script:20: attempt to perform arithmetic on a nil value",
		"ERR the fencing token is not a number: delete @user_script:1: -READONLY":          "ERR the fencing token is not a number: delete @user_script:1: -READONLY",
		"NOTALOCK ERR Error running script (call to f_5b3f): @user_script:20: -READONLY x": "NOTALOCK ERR Error running script (call to f_5b3f): @user_script:20: -READONLY x",
	} {
		replies := reader{from: strings.NewReader("-" + said + "\r\n")}
		r, err := replies.reply()
		if err != nil || r.Err == nil || r.Err.Error() != want {
			t.Errorf("%q is read as %v, %v; want %q", said, r.Err, err, want)
		}
	}
}
