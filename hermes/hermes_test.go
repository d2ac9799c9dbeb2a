package hermes

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// install makes an installation with these files, by name.
func install(t *testing.T, files map[string]string) string {
	t.Helper()
	home := t.TempDir()
	if err := os.Chmod(home, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(home, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return home
}

const (
	openrouter = "sk-or-v1-" + "0a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f9"
	telegram   = "123456789:AAE-abcdefghijklmnopqrstuvwxyz01234"
	serverKey  = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
)

func ids(fs []Finding) (out []string) {
	for _, f := range fs {
		out = append(out, f.ID)
	}
	return out
}

func TestSoundInstallationHasNoFindings(t *testing.T) {
	home := install(t, map[string]string{
		".env": "# keys\nexport OPENROUTER_API_KEY=" + openrouter + "\nTELEGRAM_BOT_TOKEN=\"" + telegram + "\"\nAPI_SERVER_ENABLED=true\nAPI_SERVER_KEY=" + serverKey +
			"\nAPI_SERVER_HOST=127.0.0.1\nOPENAI_BASE_URL=https://openrouter.ai/api/v1 # provider\n",
		"config.yaml": "terminal: {backend: local}\ntool_loop_guardrails: {hard_stop_enabled: true}\n",
	})
	if fs := Look(home, "", nil).Findings(); len(fs) > 0 {
		t.Errorf("got %v, want none", fs)
	}
}

func TestFindings(t *testing.T) {
	sound := "OPENROUTER_API_KEY=" + openrouter + "\n"
	tests := []struct {
		name, env, config string
		environ           []string
		want              string // id
		says              string
	}{
		{"colon changed", "TELEGRAM_BOT_TOKEN=" + strings.Replace(telegram, ":", ";", 1), "", nil, "mangled-key", `';'`},
		{"colon became a letter", "TELEGRAM_BOT_TOKEN=" + strings.Replace(telegram, ":", "Ö", 1), "", nil, "mangled-key", `'Ö'`},
		{"equals sign changed", "OPENROUTER_API_KEY´" + openrouter, "", nil, "env-line", `OPENROUTER_API_KEY has no "="`},
		{"equals sign lost", "OPENROUTER_API_KEY " + openrouter, "", nil, "env-line", `OPENROUTER_API_KEY has no "="`},
		{"at sign changed", "EMAIL_ADDRESS=bot\"example.org", "", nil, "mangled-key", `one "@"`},
		{"slash changed", "OPENAI_BASE_URL=https:--api.example.org-v1", "", nil, "mangled-key", `"https://"`},
		{"colon of a URL", "OPENAI_BASE_URL=https;//api.example.org/v1", "", nil, "mangled-key", `"https://"`},
		{"wrong prefix", "OPENROUTER_API_KEY=sk/or/v1/" + openrouter[9:], "", nil, "mangled-key", "sk-or-v1-"},
		{"cut off", "OPENROUTER_API_KEY=" + openrouter[:60], "", nil, "mangled-key", "60 characters"},
		{"doubled", "OPENROUTER_API_KEY=" + openrouter + openrouter, "", nil, "mangled-key", "146 characters"},
		{"another's key", "ANTHROPIC_API_KEY=" + openrouter, "", nil, "mangled-key", "sk-ant-"},
		{"blank within", "OPENAI_API_KEY=sk-proj-abc def", "", nil, "mangled-key", "blanks"},
		{"API server without a key", "API_SERVER_ENABLED=1", "", nil, "api-server-key", "without a key"},
		{"short key", "API_SERVER_ENABLED=1\nAPI_SERVER_KEY=12345678", "", nil, "api-server-key", "fewer than 16"},
		{"placeholder key", "API_SERVER_KEY=changeme-changeme", "", nil, "api-server-key", "placeholder"},
		{"one letter", "API_SERVER_KEY=aaaaaaaaaaaaaaaaaaaaaaaa", "", nil, "api-server-key", "different characters"},
		{"key in config", "", "platforms: {api_server: {enabled: true, key: short}}", nil, "api-server-key", "config.yaml"},
		{"CORS", "API_SERVER_KEY=" + serverKey + "\nAPI_SERVER_CORS_ORIGINS=*", "", nil, "api-server-cors", "every web page"},
		{"CORS in config", "API_SERVER_KEY=" + serverKey, "platforms: {api_server: {cors_origins: [\"https://a.example\", \"*\"]}}", nil, "api-server-cors", "every web page"},
		{"API server beyond loopback", "API_SERVER_KEY=" + serverKey + "\nAPI_SERVER_HOST=0.0.0.0", "", nil, "api-server-bind", "0.0.0.0"},
		{"dashboard beyond loopback", "", "dashboard: {host: \"::\"}", nil, "dashboard-bind", "::"},
		{"dashboard by environment", "", "", []string{"HERMES_DASHBOARD_HOST=192.0.2.1"}, "dashboard-bind", "the environment"},
		{"gateway without hard stops", "TELEGRAM_BOT_TOKEN=" + telegram, "tool_loop_guardrails: {non_interactive_hard_stop_enabled: false}", nil, "hard-stops", "Telegram"},
		{"API server without hard stops", "API_SERVER_ENABLED=1\nAPI_SERVER_KEY=" + serverKey, "", nil, "hard-stops", "the API server"},
		{"terminal backend", sound, "terminal: {backend: docker}", nil, "terminal-backend", "docker"},
		{"yolo", "HERMES_YOLO_MODE=1", "", nil, "auto-approval", "without asking"},
		{"allow all", "GATEWAY_ALLOW_ALL_USERS=true", "", nil, "allow-all", "everybody"},
		{"broken config", sound, "a: [", nil, "unreadable", "config.yaml"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			files := map[string]string{".env": tt.env + "\n"}
			if tt.config != "" {
				files["config.yaml"] = tt.config
			}
			in := Look(install(t, files), "", tt.environ)
			found := in.Findings()
			i := slices.IndexFunc(found, func(f Finding) bool { return f.ID == tt.want })
			if i < 0 {
				t.Fatalf("got %v, want %q", found, tt.want)
			}
			f := found[i]
			if text := f.Where + ": " + f.What; !strings.Contains(text, tt.says) || f.Remedy == "" {
				t.Errorf("got %q with remedy %q, want it to say %q", text, f.Remedy, tt.says)
			}
			for _, f := range found {
				if strings.Contains(f.What+f.Where+f.Remedy, openrouter[12:40]) || strings.Contains(f.What+f.Remedy, telegram[14:30]) {
					t.Errorf("%s: shows a key: %+v", f.ID, f)
				}
			}
			if other := ids(found); slices.Contains(other, "mangled-key") && tt.want != "mangled-key" {
				t.Errorf("got %v, want %q alone", other, tt.want)
			}
		})
	}
}

func TestFileModes(t *testing.T) {
	home := install(t, map[string]string{".env": "", "config.yaml": "a: 1\n", "auth.json": "{}"})
	if fs := Look(home, "", nil).Findings(); len(fs) > 0 {
		t.Fatalf("control: got %v, want none", fs)
	}
	for name, mode := range map[string]os.FileMode{".env": 0o640, "config.yaml": 0o664, "auth.json": 0o604, "": 0o777} {
		path := filepath.Join(home, name)
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		fs := Look(home, "", nil).Findings()
		if len(fs) != 1 || fs[0].ID != "file-mode" || !strings.Contains(fs[0].Remedy, path) {
			t.Errorf("%q with mode %o: got %v, want one finding", name, mode, fs)
		}
		if err := os.Chmod(path, info.Mode()); err != nil {
			t.Fatal(err)
		}
	}
}

// A file that Hermes' state has in place of .env, and a huge one, are said and not
// read.
func TestHostileFiles(t *testing.T) {
	home := install(t, map[string]string{"config.yaml": strings.Repeat("#", maxFile+1)})
	if err := os.Mkdir(filepath.Join(home, ".env"), 0o700); err != nil {
		t.Fatal(err)
	}
	if got := len(Look(home, "", nil).Unreadable); got != 2 {
		t.Errorf("unreadable: got %d files, want 2", got)
	}
}

// FuzzEnv: whatever stands in .env, each finding says where, and what is written as
// a policy to begin with holds no value of it.
func FuzzEnv(f *testing.F) {
	f.Add("A=b\n\"=\nexport X='1' # c\r\n\x00=\ufeffOPENROUTER_API_KEY\u00b4x")
	f.Add("OPENROUTER_API_KEY=sk-or-0123456789abcdef\nTELEGRAM_BOT_TOKEN='12345678:secretsecret'\nA_B sets nothing\n")
	f.Add("\xc1\nOPENAI_API_KEY=\"a\nb\"\n")
	f.Fuzz(func(t *testing.T, text string) {
		home := t.TempDir()
		if err := os.WriteFile(filepath.Join(home, ".env"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		in := Look(home, "", nil)
		for _, finding := range in.Findings() {
			if finding.What == "" || finding.Where == "" {
				t.Errorf("got %+v, want a place and what is wrong", finding)
			}
		}
		starter := string(in.Starter(func(string) bool { return true }))
		if !utf8.ValidString(starter) || strings.ContainsAny(starter, "\x00\x07\x1b\r") {
			t.Errorf("got %q, want plain text", starter)
		}
		for _, v := range in.Variables {
			secret := strings.HasSuffix(v.Name, "_KEY") || strings.HasSuffix(v.Name, "_TOKEN")
			if secret && len(v.Value) > 20 && strings.Contains(starter, v.Value) {
				t.Errorf("%s: got its value in the policy", v.Name)
			}
		}
	})
}
