package redisconn

import (
	"regexp"
	"strings"
)

const hidden = "****"

// A URL begins at :// or, where a path was made of it, at redis:/.
const begin = `(://|\b(?:rediss?|unix):/+)`

var (
	// userinfoRE goes on to the last @, since a password may hold one, and
	// from the scheme, since a token may stand where the user does. Behind a
	// blank the @ is another's, such as in Redis's "on @user_script:56".
	userinfoRE = regexp.MustCompile(begin + `[^\n]*[^\s]@`)
	addressRE  = regexp.MustCompile(begin + `[^\s"]*`)
	beginRE    = regexp.MustCompile(begin)
	portRE     = regexp.MustCompile(`^([^:]*|\[.*\])(:\d{0,5})?:?$`)
	pathRE     = regexp.MustCompile(`^/*-?\d*/*$`)
	secretRE   = regexp.MustCompile(`(?i)([?&;](?:password|passwd|auth|token|secret|username)=)[^\s&;"']*[^\s&;"':]`)
	// bareRE is a URL whose scheme is missing: user:password@host, or what
	// stands before @host:port.
	bareRE = regexp.MustCompile(`[^\s"]*:[^\s"]+@|[^\s"]+@([^\s"@:/]*:\d)`)
	// hostRE is an address without a scheme that holds no secret: a password
	// and the name of a user may look like a bare host and a port.
	hostRE = regexp.MustCompile(`^((localhost|[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+):\d{1,5}(/\d*)?)?$`)
)

// MaskText hides users, passwords and option values of the URLs in a text, also
// of those that do not parse, were cut, or lack their scheme. A host that may
// be a password, since the @ was forgotten, is hidden too. Masked text stays as
// it is.
func MaskText(text string) string {
	if beginRE.MatchString(text) {
		text = userinfoRE.ReplaceAllString(text, "${1}"+hidden+"@")
		text = addressRE.ReplaceAllStringFunc(text, maskAddress)
	}
	text = bareRE.ReplaceAllStringFunc(text, maskBare)
	return secretRE.ReplaceAllString(text, "${1}"+hidden)
}

// maskAddress masks what stands from :// to the end of a URL that has lost its
// user and password: all that is no host, port, number of a database, path of a
// socket, or name of an option, since a password may have come anywhere.
func maskAddress(address string) string {
	at := beginRE.FindStringIndex(address)[1]
	begin, rest := address[:at], address[at:]
	rest = strings.TrimRight(rest, ":),.;'…") // of the sentence
	end := address[at+len(rest):]
	host, tail := cutBefore(rest, `/?#'`)
	if !portRE.MatchString(host) {
		return begin + hidden + end
	}
	path, query := cutBefore(tail, "?#'")
	if !pathRE.MatchString(path) && !strings.HasPrefix(begin, "unix:") {
		path = "/" + hidden
	}
	return begin + host + path + maskQuery(query) + end
}

// cutBefore cuts before the first of some signs.
func cutBefore(s, signs string) (before, after string) {
	if i := strings.IndexAny(s, signs); i >= 0 {
		return s[:i], s[i:]
	}
	return s, ""
}

// maskQuery leaves the names of options.
func maskQuery(query string) string {
	if query == "" || query[0] != '?' {
		return query[:min(1, len(query))] + strings.Repeat(hidden, min(1, len(query)))
	}
	options := strings.FieldsFunc(query[1:], func(r rune) bool { return strings.ContainsRune("?&;", r) })
	for i, o := range options {
		name, _, isOption := strings.Cut(o, "=")
		if options[i] = hidden; isOption && optionNames[name] {
			options[i] = name + "=" + hidden
		}
	}
	return "?" + strings.Join(options, "&")
}

// optionNames are those of go-redis, and of redis-py and Celery, which people
// bring along: their names are no secrets.
var optionNames = map[string]bool{
	"db": true, "protocol": true, "client_name": true, "max_retries": true, "min_retry_backoff": true, "max_retry_backoff": true,
	"dial_timeout": true, "read_timeout": true, "write_timeout": true, "pool_fifo": true, "pool_size": true, "pool_timeout": true,
	"min_idle_conns": true, "max_idle_conns": true, "max_active_conns": true, "max_concurrent_dials": true,
	"pipeline_pool_size": true, "pipeline_read_buffer_size": true, "pipeline_write_buffer_size": true,
	"conn_max_idle_time": true, "idle_timeout": true, "conn_max_lifetime": true, "max_conn_age": true, "conn_max_lifetime_jitter": true,
	"skip_verify":   true,
	"ssl_cert_reqs": true, "ssl_ca_certs": true, "ssl_certfile": true, "ssl_keyfile": true, "ssl_check_hostname": true,
	"socket_timeout": true, "socket_connect_timeout": true, "socket_keepalive": true, "health_check_interval": true,
	"retry_on_timeout": true, "max_connections": true, "decode_responses": true, "encoding": true, "virtual_host": true,
	"visibility_timeout": true, "username": true, "password": true,
}

func maskBare(text string) string {
	if at := beginRE.FindStringIndex(text); at != nil {
		return text // masked by now
	}
	return hidden + text[strings.LastIndexByte(text, '@'):]
}

// MaskURL is [MaskText] for what should be one URL: without a scheme nothing of
// it is shown, unless it is a host and a port, where the host is localhost or
// has a dot in it.
func MaskURL(raw string) string {
	scheme, _, found := strings.Cut(raw, "://")
	switch {
	case !found && !hostRE.MatchString(raw):
		return hidden
	case strings.ContainsAny(raw, " \t\r\n"):
		return scheme + "://" + hidden
	}
	return MaskText(raw)
}
