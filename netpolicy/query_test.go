package netpolicy

import "testing"

func TestIsParameter(t *testing.T) {
	for _, c := range []struct {
		sent, name string
		want       bool
	}{
		{"user_id", "user_id", true},
		{"USER_ID", "user_id", true},
		{" user_id", "user_id", true},
		{"user_id[]", "user_id", true},
		{"user_id[0]", "user_id", true},
		{"user_id[a][b]", "user_id", true},
		{"user.id", "user_id", true}, // PHP
		{"user id", "user_id", true},
		{"user[id", "user_id", true},
		{"user.id[]", "user_id", true},
		{"User.Id", "user_id", true},
		{"user_id", "user.id", true}, // a rule for a server of PHP in its own words
		{".method", "_method", true},
		{"[method", "_method", true},
		{" method", "_method", false},
		{"userid", "user_id", false},
		{"user-id", "user_id", false},
		{"user_id2", "user_id", false},
		{"", "user_id", false},
		{"x[user_id]", "user_id", false},
	} {
		if got := IsParameter(c.sent, c.name); got != c.want {
			t.Errorf("IsParameter(%q, %q): got %v, want %v", c.sent, c.name, got, c.want)
		}
	}
}
