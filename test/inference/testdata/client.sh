# Asks a model once: client.sh URL BODY.
exec curl -s -w ' %{http_code}\n' -H 'Content-Type: application/json' -H "Authorization: Bearer $MODEL_KEY" --data-raw "$2" "$1"
