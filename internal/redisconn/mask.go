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
	// from the scheme, since a token may stand where the user does.
	userinfoRE = regexp.MustCompile(begin + `[^\n]*@`)
	addressRE  = regexp.MustCompile(begin + `[^\s"]*`)
	beginRE    = regexp.MustCompile(begin)
	portRE     = regexp.MustCompile(`^([^:]*|\[.*\])(:\d{0,5})?:?$`)
	optionRE   = regexp.MustCompile(`([?&;][^=&;?\s]*=)[^\s&;"']*`)
	secretRE   = regexp.MustCompile(`(?i)([?&;](?:password|passwd|auth|token|secret|username)=)[^\s&;"']+`)
	// bareRE is a URL whose scheme is missing: user:password@host, or what
	// stands before @host:port.
	bareRE = regexp.MustCompile(`[^\s"]*:[^\s"]+@|[^\s"]+@([^\s"@:/]*:\d)`)
	// hostRE is an address without a scheme that holds no secret.
	hostRE = regexp.MustCompile(`^[\w.-]*(:\d{0,5})?(/\d*)?$`)
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
// user and password.
func maskAddress(address string) string {
	at := beginRE.FindStringIndex(address)[1]
	host := address[at:]
	if i := strings.IndexAny(host, `/?#'`); i >= 0 {
		host = host[:i]
	}
	if !portRE.MatchString(host) {
		return address[:at] + hidden
	}
	address, colon := strings.CutSuffix(address, ":") // of the sentence
	address = optionRE.ReplaceAllString(address, "${1}"+hidden)
	if colon {
		address += ":"
	}
	return address
}

func maskBare(text string) string {
	if at := beginRE.FindStringIndex(text); at != nil {
		return text // masked by now
	}
	return hidden + text[strings.LastIndexByte(text, '@'):]
}

// MaskURL is [MaskText] for what should be one URL: without a scheme nothing of
// it is shown, unless it is a host and a port.
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
